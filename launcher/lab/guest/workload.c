/* SPDX-License-Identifier: Apache-2.0
 *
 * What the guest does all day, in one static program:
 *   workload tick PERIOD_MS       print "tick N uptime S" every period, by absolute time so that it does not drift
 *   workload dirty MIB MIB_PER_S [ON_S OFF_S]
 *                                 write to each page of a buffer again and again, at a given rate, all the time or
 *                                 in bursts; before a page is written it must hold what was written the last time
 *   workload disk DEVICE          write numbered blocks to a device, past its cache, and read others again
 * Whatever does not hold what was written is told in a line that begins with "BAD".
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES_PER_MIB = (1 << 20) / PAGE, SLICES_PER_S = 50, SCRATCH_PAGES = 64 };
enum { DISK_BLOCKS = 1024, DISK_PERIOD_MS = 20, DISK_REPORT = 100 };
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

/* What a page holds in a round: nothing else of the guest looks like it. */
static uint64_t stamp(uint64_t round, uint64_t page)
{
    return (round << 32 | page) * 0x9e3779b97f4a7c15ull + 1;
}

static void write_page(unsigned char *page, uint64_t value)
{
    for (int i = 0; i < 8; i++)
        ((uint64_t *)page)[i] = value;
}

static int dirty(long mib, long mib_per_s, long on_s, long off_s)
{
    const long pages = mib * PAGES_PER_MIB, slice = mib_per_s * PAGES_PER_MIB / SLICES_PER_S;
    unsigned char *buffer = aligned_alloc(PAGE, pages * PAGE);
    unsigned char *scratch = aligned_alloc(PAGE, SCRATCH_PAGES * PAGE);
    struct timespec next;

    if (!buffer || !scratch)
        return 1;
    memset(buffer, 1, pages * PAGE);
    memset(scratch, 1, SCRATCH_PAGES * PAGE);
    for (long page = 0; page < pages; page++)
        write_page(buffer + page * PAGE, stamp(0, page));
    printf("dirty %ld MiB at %ld MiB/s\n", mib, mib_per_s);
    fflush(stdout);
    clock_gettime(CLOCK_MONOTONIC, &next);
    uint64_t round = 1;
    for (long page = 0, slices = 0;; slices++) {
        for (long i = 0; i < slice; i++) {
            uint64_t *at = (uint64_t *)(buffer + page * PAGE);
            if (at[0] != stamp(round - 1, page) || at[7] != at[0]) {
                printf("BAD page %ld in round %llu\n", page, (unsigned long long)round);
                fflush(stdout);
            }
            write_page(buffer + page * PAGE, stamp(round, page));
            if (++page == pages) {
                page = 0;
                round++;
            }
        }
        drop_translations(scratch);
        sleep_to_next(&next, NS_PER_S / SLICES_PER_S);
        if (on_s && slices >= on_s * SLICES_PER_S) {
            slices = 0;
            sleep(off_s);
            clock_gettime(CLOCK_MONOTONIC, &next);
        }
    }
}

/* One block, by its place, with what was written there last; 0: nothing yet. */
static int disk(const char *device)
{
    static uint64_t written[DISK_BLOCKS];
    uint64_t *block = aligned_alloc(PAGE, PAGE);
    int file = open(device, O_RDWR | O_DIRECT | O_DSYNC);
    struct timespec next;

    if (!block || file < 0) {
        perror(device);
        return 1;
    }
    printf("disk %s\n", device);
    fflush(stdout);
    clock_gettime(CLOCK_MONOTONIC, &next);
    for (uint64_t n = 1;; n++) {
        unsigned place = n * 7 % DISK_BLOCKS, other = n * 31 % DISK_BLOCKS;
        for (int i = 0; i < PAGE / 8; i++)
            block[i] = stamp(n, place);
        if (pwrite(file, block, PAGE, (off_t)place * PAGE) != PAGE)
            printf("BAD write of block %u\n", place);
        written[place] = n;
        if (written[other]) {
            if (pread(file, block, PAGE, (off_t)other * PAGE) != PAGE)
                printf("BAD read of block %u\n", other);
            else if (block[0] != stamp(written[other], other) || block[PAGE / 8 - 1] != block[0])
                printf("BAD block %u\n", other);
        }
        if (n % DISK_REPORT == 0)
            printf("disk %llu\n", (unsigned long long)n);
        fflush(stdout);
        sleep_to_next(&next, DISK_PERIOD_MS * 1000000L);
    }
}

int main(int count, char **words)
{
    if (count == 3 && !strcmp(words[1], "tick") && atol(words[2]) > 0)
        return tick(atol(words[2]));
    if ((count == 4 || count == 6) && !strcmp(words[1], "dirty") && atol(words[2]) > 0 && atol(words[3]) > 0)
        return dirty(atol(words[2]), atol(words[3]), count == 6 ? atol(words[4]) : 0, count == 6 ? atol(words[5]) : 0);
    if (count == 3 && !strcmp(words[1], "disk"))
        return disk(words[2]);
    fputs("usage: workload tick PERIOD_MS | dirty MIB MIB_PER_S [ON_S OFF_S] | disk DEVICE\n", stderr);
    return 2;
}
