/* Preloaded (LD_PRELOAD) by `soak.py --pauses`: half of the readings of a clock may stop for a while, before or after.

   A process that is stopped at a random moment seldom stops between two readings of a clock, which is where a test that
   decides by a real clock goes wrong; here it always does. All clocks agree, and programs that do not ask for the time
   run as ever. Mean of the pauses: 20 ms, some 8 ms apart, both exponential. */

#define _GNU_SOURCE
#include <errno.h>
#include <math.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define APART 0.008
#define PAUSE 0.02

static double due; /* s, by the monotonic clock; 0 until the first reading */
static unsigned long long state;

static double uniform(void) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL; /* Knuth's */
    return ((state >> 11) + 1) / 9007199254740993.0;
}

static double now(void) {
    struct timespec t;
    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static void pause_now_and_then(void) {
    int before = errno;
    double at = now();
    if (!due) {
        state = getpid() * 2654435761ULL ^ (unsigned long long)(at * 1e9);
        due = at - APART * log(uniform());
    }
    if (at >= due) {
        double seconds = fmin(-PAUSE * log(uniform()), 10 * PAUSE);
        struct timespec t = {0, (long)(seconds * 1e9)};
        due = at + 1e9; /* no other thread stops meanwhile */
        syscall(SYS_nanosleep, &t, NULL);
        due = now() - APART * log(uniform());
    }
    errno = before;
}

int clock_gettime(clockid_t clock, struct timespec *t) {
    int counts = clock == CLOCK_MONOTONIC || clock == CLOCK_THREAD_CPUTIME_ID || clock == CLOCK_PROCESS_CPUTIME_ID;
    int is_after = counts && uniform() < 0.5;
    if (counts && !is_after)
        pause_now_and_then();
    int result = syscall(SYS_clock_gettime, clock, t);
    if (is_after)
        pause_now_and_then();
    return result;
}
