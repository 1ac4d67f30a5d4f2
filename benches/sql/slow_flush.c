/* Preloaded into a server: each flush of a file takes PGEVICT_FLUSH_US microseconds longer, as on a slower disk. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static void wait_longer(void)
{
    const char *text = getenv("PGEVICT_FLUSH_US");
    long us = text ? atol(text) : 0;
    struct timespec left = {us / 1000000, us % 1000000 * 1000};

    while (us > 0 && nanosleep(&left, &left) != 0)
        ;
}

int fdatasync(int fd)
{
    wait_longer();
    return (int)syscall(SYS_fdatasync, fd);
}

int fsync(int fd)
{
    wait_longer();
    return (int)syscall(SYS_fsync, fd);
}
