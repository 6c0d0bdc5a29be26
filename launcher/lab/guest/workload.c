/* SPDX-License-Identifier: Apache-2.0
 *
 * The two things the guest does all day, in one static program:
 *   workload tick PERIOD_MS       print "tick N uptime S" every period, by absolute time so that it does not drift
 *   workload dirty MIB MIB_PER_S  write to each page of a buffer again and again, at a given rate
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES_PER_MIB = (1 << 20) / PAGE, SLICES_PER_S = 50, SCRATCH_PAGES = 64 };
static const long NS_PER_S = 1000000000L;

static void add_ns(struct timespec *at, long ns)
{
    at->tv_nsec += ns;
    while (at->tv_nsec >= NS_PER_S) {
        at->tv_nsec -= NS_PER_S;
        at->tv_sec++;
    }
}

/* Sleep until *next and move it on. After a long stop, time that has passed is not made up for. */
static void sleep_to_next(struct timespec *next, long period_ns)
{
    struct timespec now;

    add_ns(next, period_ns);
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (now.tv_sec > next->tv_sec + 1)
        *next = now;
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, next, NULL);
}

static int tick(long period_ms)
{
    struct timespec next, now;
    char line[64];

    clock_gettime(CLOCK_MONOTONIC, &next);
    for (unsigned long n = 1;; n++) {
        clock_gettime(CLOCK_MONOTONIC, &now);
        int length = snprintf(line, sizeof line, "tick %lu uptime %ld.%02ld\n", n, (long)now.tv_sec,
                              now.tv_nsec / 10000000L);
        if (write(STDOUT_FILENO, line, length) != length)
            return 1;
        long whole = period_ms / 1000, rest = period_ms % 1000;
        next.tv_sec += whole;
        sleep_to_next(&next, rest * 1000000L);
    }
}

/*
 * Change the protection of so many pages that the kernel drops all of this CPU's translations. QEMU before 9.0
 * emulating a CPU forgets to note a second write through a translation that it has cached, so the pages of a
 * small buffer would look clean; a guest that switches between programs does this all the time.
 */
static void drop_translations(unsigned char *scratch)
{
    mprotect(scratch, SCRATCH_PAGES * PAGE, PROT_READ);
    mprotect(scratch, SCRATCH_PAGES * PAGE, PROT_READ | PROT_WRITE);
}

static int dirty(long mib, long mib_per_s)
{
    const long pages = mib * PAGES_PER_MIB, slice = mib_per_s * PAGES_PER_MIB / SLICES_PER_S;
    unsigned char *buffer = aligned_alloc(PAGE, pages * PAGE), value = 1;
    unsigned char *scratch = aligned_alloc(PAGE, SCRATCH_PAGES * PAGE);
    struct timespec next;

    if (!buffer || !scratch)
        return 1;
    memset(buffer, value, pages * PAGE);
    memset(scratch, value, SCRATCH_PAGES * PAGE);
    printf("dirty %ld MiB at %ld MiB/s\n", mib, mib_per_s);
    fflush(stdout);
    clock_gettime(CLOCK_MONOTONIC, &next);
    for (long page = 0;;) {
        for (long i = 0; i < slice; i++) {
            memset(buffer + page * PAGE, value, 64);
            if (++page == pages) {
                page = 0;
                value++;
            }
        }
        drop_translations(scratch);
        sleep_to_next(&next, NS_PER_S / SLICES_PER_S);
    }
}

int main(int count, char **words)
{
    if (count == 3 && !strcmp(words[1], "tick") && atol(words[2]) > 0)
        return tick(atol(words[2]));
    if (count == 4 && !strcmp(words[1], "dirty") && atol(words[2]) > 0 && atol(words[3]) > 0)
        return dirty(atol(words[2]), atol(words[3]));
    fputs("usage: workload tick PERIOD_MS | workload dirty MIB MIB_PER_S\n", stderr);
    return 2;
}
