/* A wall clock that a file controls. LD_PRELOAD loads it, and LAB_SERVERS_CLOCK names the file. The
 * file is shared memory, so that a test can set the clock while the program runs. The file also
 * counts the readings of the clock. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000
#define SETTINGS 128

/* The clock showed `shown` when the machine's clock showed `since`, both in nanoseconds. From then
 * on the clock gains `gain` millionths of the time that passes. `readings` counts its readings. */
struct setting {
    int64_t since, shown, gain;
    uint64_t readings;
};

/* A setting is written before `current` makes it valid. The next 127 settings do not overwrite it. So
 * a program has long stopped reading a setting when the setting is overwritten. */
struct shared {
    uint64_t current;
    struct setting settings[SETTINGS];
};

static struct shared *shared;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("LAB_SERVERS_CLOCK");
    int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    void *memory = file < 0
        ? MAP_FAILED
        : mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED) abort();
    shared = memory;
    close(file);
}

/* The setting is loaded before the machine's clock is read. With the other order, a newer setting
 * could have a `since` later than the reading. */
static int read_clock(struct timespec *time) {
    uint64_t current = __atomic_load_n(&shared->current, __ATOMIC_ACQUIRE);
    struct setting *setting = &shared->settings[current % SETTINGS];
    if (syscall(SYS_clock_gettime, CLOCK_REALTIME, time)) return -1;
    int64_t passed = (int64_t)time->tv_sec * SECOND + time->tv_nsec - setting->since;
    int64_t shown = setting->shown + passed + (int64_t)((__int128)passed * setting->gain / 1000000);
    *time = (struct timespec){shown / SECOND, shown % SECOND};
    __atomic_fetch_add(&setting->readings, 1, __ATOMIC_RELEASE);
    return 0;
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    int is_wall = clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
    return shared && is_wall ? read_clock(time) : (int)syscall(SYS_clock_gettime, clock, time);
}

int gettimeofday(struct timeval *restrict time, void *restrict zone) {
    (void)zone;
    struct timespec now;
    int failed = clock_gettime(CLOCK_REALTIME, &now);
    *time = (struct timeval){now.tv_sec, now.tv_nsec / 1000};
    return failed;
}

time_t time(time_t *seconds) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (seconds) *seconds = now.tv_sec;
    return now.tv_sec;
}
