/* Tests of finding the memory that a VM shares with its host, in a folder that looks as sysfs does. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "control/client/vm_memory.h"

enum { BYTES = 1 << 20, PATH_BYTES = 160 };

static const char vm_ip[] = "10.0.0.7";

struct machine {
    char folder[64];
    struct flyt_error err;
    struct flyt_client_vm_memory memory;
};

static int set_up(void **state)
{
    struct machine *machine = calloc(1, sizeof *machine);

    strcpy(machine->folder, "/tmp/flyt-vm-memory-test-XXXXXX");
    assert_non_null(mkdtemp(machine->folder));
    *state = machine;
    return 0;
}

static int tear_down(void **state)
{
    struct machine *machine = *state;
    char command[128];

    snprintf(command, sizeof command, "rm -rf %s", machine->folder);
    assert_int_equal(system(command), 0);
    free(machine);
    return 0;
}

static void path_of(const struct machine *machine, const char *device, const char *name, char *path)
{
    snprintf(path, PATH_BYTES, "%s/%s/%s", machine->folder, device, name);
}

static void write_file(const struct machine *machine, const char *device, const char *name, const void *data,
                       size_t bytes, size_t file_bytes)
{
    char path[PATH_BYTES];

    path_of(machine, device, name, path);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, data, bytes), bytes);
    assert_int_equal(ftruncate(fd, (off_t)file_bytes), 0);
    close(fd);
}

static void write_text(const struct machine *machine, const char *device, const char *name, const char *text)
{
    write_file(machine, device, name, text, strlen(text), strlen(text));
}

/* A device of a kind, with its memory; `head` NULL: without. */
static void add(const struct machine *machine, const char *device, const char *vendor, const char *kind,
                const struct flyt_vm_memory_head *head)
{
    char path[PATH_BYTES];

    path_of(machine, device, "", path);
    assert_int_equal(mkdir(path, 0700), 0);
    write_text(machine, device, "vendor", vendor);
    write_text(machine, device, "device", kind);
    write_text(machine, device, "enable", "0\n");
    if (head)
        write_file(machine, device, "resource2", head, sizeof *head, BYTES);
}

static int find(struct machine *machine)
{
    machine->err.text[0] = 0;
    machine->memory = (struct flyt_client_vm_memory){.fd = -1};
    return flyt_client_vm_memory_find(machine->folder, vm_ip, &machine->err, &machine->memory);
}

static void refuses(struct machine *machine, int status, const char *word)
{
    assert_int_equal(find(machine), status);
    if (!strstr(machine->err.text, word))
        fail_msg("'%s' does not name '%s'", machine->err.text, word);
    assert_int_equal(machine->memory.fd, -1);
}

static void test_there_is_none(void **state)
{
    struct machine *machine = *state;
    const struct flyt_vm_memory_head head = flyt_vm_memory_head_of(vm_ip, BYTES);

    refuses(machine, -ENODEV, "no PCI device");
    add(machine, "0000:00:02.0", "0x1af4\n", "0x1000\n", &head); /* a network card */
    add(machine, "0000:00:03.0", "0x8086\n", "0x1110\n", &head);
    refuses(machine, -ENODEV, "no PCI device");
    rmdir(machine->folder);
    strcat(machine->folder, "/nowhere");
    refuses(machine, -ENODEV, "no PCI device");
    *strrchr(machine->folder, '/') = 0;
}

static void test_it_is_found(void **state)
{
    struct machine *machine = *state;
    const struct flyt_vm_memory_head head = flyt_vm_memory_head_of(vm_ip, BYTES), none = {0};
    char path[PATH_BYTES], enabled[2] = "";

    add(machine, "0000:00:02.0", "0x1af4\n", "0x1110\n", &none); /* somebody else's, for something else */
    add(machine, "0000:00:04.0", "0x1af4\n", "0x1110\n", &head);
    add(machine, "0000:00:05.0", "0x1af4\n", "0x1000\n", NULL);
    if (find(machine))
        fail_msg("%s", machine->err.text);
    assert_int_equal(machine->memory.bytes, BYTES);
    snprintf(path, sizeof path, "%s/0000:00:04.0", machine->folder);
    assert_string_equal(machine->memory.device, path);
    assert_true(fcntl(machine->memory.fd, F_GETFD) & FD_CLOEXEC);
    struct flyt_vm_memory_head *seen = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, machine->memory.fd, 0);
    assert_ptr_not_equal(seen, MAP_FAILED);
    assert_memory_equal(seen, &head, sizeof head);
    munmap(seen, BYTES);
    close(machine->memory.fd);
    path_of(machine, "0000:00:04.0", "enable", path);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_int_equal(read(fd, enabled, 1), 1);
    close(fd);
    assert_string_equal(enabled, "1");
}

static void test_heads_that_are_wrong(void **state)
{
    static const struct {
        size_t offset;
        const char *bytes, *word;
        size_t count;
        int status;
    } cases[] = {
        {offsetof(struct flyt_vm_memory_head, signature), "F", "signature", 1, -ENOENT},
        {offsetof(struct flyt_vm_memory_head, signature) + 15, "x", "signature", 1, -ENOENT},
        {offsetof(struct flyt_vm_memory_head, version), "\2", "version is 2", 1, -EPROTO},
        {offsetof(struct flyt_vm_memory_head, head_bytes), "\1", "version", 1, -EPROTO},
        {offsetof(struct flyt_vm_memory_head, bytes) + 7, "\1", "bytes", 1, -EINVAL},
        {offsetof(struct flyt_vm_memory_head, vm_ip), "x", "address", 1, -EINVAL},
        {offsetof(struct flyt_vm_memory_head, vm_ip), "10.0.0.8", "VM 10.0.0.8", 8, -EINVAL},
    };
    struct machine *machine = *state;
    struct flyt_vm_memory_head head = flyt_vm_memory_head_of(vm_ip, BYTES);

    add(machine, "0000:00:04.0", "0x1af4\n", "0x1110\n", &head);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        head = flyt_vm_memory_head_of(vm_ip, BYTES);
        memcpy((char *)&head + cases[i].offset, cases[i].bytes, cases[i].count);
        write_file(machine, "0000:00:04.0", "resource2", &head, sizeof head, BYTES);
        refuses(machine, cases[i].status, cases[i].word);
        refuses(machine, cases[i].status, "0000:00:04.0");
    }
    head = flyt_vm_memory_head_of(vm_ip, BYTES);
    memset(head.vm_ip, '1', sizeof head.vm_ip); /* no end */
    write_file(machine, "0000:00:04.0", "resource2", &head, sizeof head, BYTES);
    refuses(machine, -EINVAL, "address");
    head = flyt_vm_memory_head_of(vm_ip, BYTES);
    write_file(machine, "0000:00:04.0", "resource2", &head, sizeof head, BYTES / 2);
    refuses(machine, -EINVAL, "524288");
    write_file(machine, "0000:00:04.0", "resource2", &head, sizeof head, sizeof head);
    refuses(machine, -EINVAL, "less than a page");
}

static void test_it_cannot_be_opened(void **state)
{
    struct machine *machine = *state;
    char path[PATH_BYTES];

    add(machine, "0000:00:04.0", "0x1af4\n", "0x1110\n", NULL);
    refuses(machine, -ENOENT, "resource2");
    path_of(machine, "0000:00:04.0", "enable", path);
    assert_int_equal(unlink(path), 0);
    refuses(machine, -ENOENT, "enabled");
}

static void test_it_is_opened_for_programs(void **state)
{
    struct machine *machine = *state;
    const struct flyt_vm_memory_head head = flyt_vm_memory_head_of(vm_ip, BYTES);
    struct flock lock = {.l_type = F_WRLCK, .l_len = 1};
    double ratio = 0;
    char path[PATH_BYTES];

    add(machine, "0000:00:04.0", "0x1af4\n", "0x1110\n", &head);
    assert_int_equal(find(machine), 0);
    int one = flyt_client_vm_memory_open(&machine->memory), other = flyt_client_vm_memory_open(&machine->memory);
    assert_true(one >= 0 && other >= 0);
    assert_int_equal(fcntl(one, F_OFD_SETLK, &lock), 0);
    assert_int_equal(fcntl(other, F_OFD_SETLK, &lock), -1); /* another open description */
    assert_int_equal(flyt_client_vm_memory_measure(&machine->memory, &ratio), 0);
    assert_true(ratio > 0); /* it is ordinary memory, but how fast nobody knows on a busy machine */
    close(one);
    close(other);
    close(machine->memory.fd);
    path_of(machine, "0000:00:04.0", "resource2", path);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(flyt_client_vm_memory_open(&machine->memory), -ENOENT);
}

static void test_a_group_is_let_in(void **state)
{
    struct machine *machine = *state;
    const struct flyt_vm_memory_head head = flyt_vm_memory_head_of(vm_ip, BYTES);
    char path[PATH_BYTES];
    struct stat info;

    assert_int_equal(flyt_client_vm_memory_admit(machine->folder, getegid(), &machine->err), 0); /* there is none */
    add(machine, "0000:00:02.0", "0x1af4\n", "0x1000\n", &head);
    add(machine, "0000:00:04.0", "0x1af4\n", "0x1110\n", &head);
    assert_int_equal(flyt_client_vm_memory_admit(machine->folder, getegid(), &machine->err), 0);
    path_of(machine, "0000:00:04.0", "resource2", path);
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0660);
    assert_int_equal(info.st_gid, getegid());
    path_of(machine, "0000:00:02.0", "resource2", path);
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600); /* of another kind */
    add(machine, "0000:00:05.0", "0x1af4\n", "0x1110\n", NULL);
    assert_int_equal(flyt_client_vm_memory_admit(machine->folder, getegid(), &machine->err), -ENOENT);
    assert_non_null(strstr(machine->err.text, "0000:00:05.0"));
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_there_is_none),
        TEST(test_it_is_found),
        TEST(test_heads_that_are_wrong),
        TEST(test_it_cannot_be_opened),
        TEST(test_it_is_opened_for_programs),
        TEST(test_a_group_is_let_in),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
