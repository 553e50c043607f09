#include "control/flytctl/screen.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "control/flytctl/text.h"
#include "rpc/base/clock.h"

bool flyt_screen_size(unsigned *ret_columns, unsigned *ret_lines)
{
    struct winsize size;

    if (!isatty(STDOUT_FILENO) || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size))
        return false;
    *ret_columns = size.ws_col ? size.ws_col : 80;
    *ret_lines = size.ws_row ? size.ws_row : 24;
    return true;
}

/* Signals are blocked but while we wait. */
static volatile sig_atomic_t is_signalled;

static void on_signal(int number)
{
    is_signalled = 1;
}

struct keys {
    bool is_changed;
    struct termios before;
    sigset_t during_wait;
};

static void take_keys(struct keys *keys)
{
    const struct sigaction action = {.sa_handler = on_signal};
    sigset_t blocked;

    sigemptyset(&blocked);
    sigaddset(&blocked, SIGINT);
    sigaddset(&blocked, SIGTERM);
    sigaddset(&blocked, SIGHUP);
    sigprocmask(SIG_BLOCK, &blocked, &keys->during_wait);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
    keys->is_changed = isatty(STDIN_FILENO) && !tcgetattr(STDIN_FILENO, &keys->before);
    if (!keys->is_changed)
        return;
    struct termios now = keys->before;
    now.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    tcsetattr(STDIN_FILENO, TCSANOW, &now);
}

static void give_keys_back(const struct keys *keys)
{
    if (keys->is_changed)
        tcsetattr(STDIN_FILENO, TCSANOW, &keys->before);
}

/* Whether it is to end: q was typed, or a signal came. */
static bool wait_for(const struct keys *keys, uint64_t delay_ms)
{
    uint64_t deadline_ms = flyt_clock_ms() + delay_ms;

    for (;;) {
        int left_ms = flyt_clock_left_ms(deadline_ms);
        const struct timespec left = {left_ms / 1000, left_ms % 1000 * 1000000l};
        struct pollfd input = {.fd = keys->is_changed ? STDIN_FILENO : -1, .events = POLLIN};
        char key;
        int count = ppoll(&input, 1, &left, &keys->during_wait);
        if (is_signalled || (count < 0 && errno != EINTR))
            return true;
        if (count < 0)
            continue;
        if (count == 0)
            return false;
        if (read(STDIN_FILENO, &key, 1) != 1 || key == 'q' || key == 'Q')
            return true;
    }
}

/* Over what stood there before: each line is cleared to its end, then all below. */
static void put_on_screen(const char *text, unsigned lines)
{
    fputs("\033[H", stdout);
    for (unsigned line = 0; *text && line + 1 < lines; line++) {
        size_t bytes = strcspn(text, "\n");
        fwrite(text, 1, bytes, stdout);
        fputs("\033[K\n", stdout);
        text += bytes + (text[bytes] == '\n');
    }
    fputs("\033[J", stdout);
}

static enum flyt_exit show_once(struct flyt_ctl *ctl, bool is_first,
                                enum flyt_exit (*show)(struct flyt_ctl *ctl, void *user), void *user)
{
    unsigned lines = 0;
    char *text = NULL;
    size_t bytes;

    if (ctl->is_terminal && !flyt_screen_size(&ctl->width, &lines))
        lines = 24;
    FILE *out = flyt_must(open_memstream(&text, &bytes));
    ctl->out = out;
    enum flyt_exit status = show(ctl, user);
    ctl->out = stdout;
    fclose(out);
    flyt_must(text);
    if (lines && status == FLYT_EXIT_OK)
        put_on_screen(text, lines);
    else
        printf("%s%s", is_first || lines || ctl->output == FLYT_OUTPUT_JSON ? "" : "\n", text);
    free(text);
    if (fflush(stdout))
        status = flyt_complain(FLYT_EXIT_UNREACHABLE, "standard output cannot be written: %s", strerror(errno));
    return status;
}

enum flyt_exit flyt_screen_run(struct flyt_ctl *ctl, uint64_t delay_ms, uint64_t count,
                               enum flyt_exit (*show)(struct flyt_ctl *ctl, void *user), void *user)
{
    struct keys keys = {.is_changed = false};
    enum flyt_exit status = FLYT_EXIT_OK;

    take_keys(&keys);
    if (ctl->is_terminal)
        fputs("\033[2J", stdout);
    for (uint64_t i = 0;; i++) {
        status = show_once(ctl, i == 0, show, user);
        if ((count && i + 1 >= count) || ferror(stdout))
            break;
        if (wait_for(&keys, delay_ms)) {
            status = FLYT_EXIT_OK;
            break;
        }
    }
    give_keys_back(&keys);
    return status;
}
