// Adds 1 to a number on the GPU, then shows how it was started: prints each argument in brackets and copies standard
// input to standard output. The first argument may be "exit=N" (that exit status), "signal=N" (ends by that signal) or
// "wait" (says "waiting" and waits for a signal; SIGUSR1 and SIGTERM are reported by "got N", status 10 + N).
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

__global__ void add_one(int *p)
{
    *p += 1;
}

static void report_signal(int number)
{
    char line[] = "got 00\n";
    line[4] = (char)('0' + number / 10);
    line[5] = (char)('0' + number % 10);
    _exit(write(STDOUT_FILENO, line, sizeof(line) - 1) > 0 ? 10 + number : 1);
}

int main(int argc, char **argv)
{
    int *p, value = 41, c;

    setvbuf(stdout, NULL, _IOLBF, 0);
    if (cudaMalloc(&p, sizeof(int)) || cudaMemcpy(p, &value, sizeof(int), cudaMemcpyHostToDevice))
        return 1;
    add_one<<<1, 1>>>(p);
    if (cudaMemcpy(&value, p, sizeof(int), cudaMemcpyDeviceToHost) || value != 42)
        return 1;
    for (int i = 1; i < argc; i++)
        printf("[%s]\n", argv[i]);
    if (argc > 1 && !strcmp(argv[1], "wait")) {
        signal(SIGUSR1, report_signal);
        signal(SIGTERM, report_signal);
        printf("waiting\n");
        for (;;)
            pause();
    }
    while ((c = getchar()) != EOF)
        putchar(c);
    if (argc > 1 && !strncmp(argv[1], "signal=", 7))
        raise(atoi(argv[1] + 7));
    return argc > 1 && !strncmp(argv[1], "exit=", 5) ? atoi(argv[1] + 5) : 0;
}
