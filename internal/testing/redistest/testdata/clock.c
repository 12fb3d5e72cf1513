// A library for LD_PRELOAD: the wall clock of the process runs ahead by the seconds in the file that
// FREESLOT_CLOCK names. It calls the kernel directly, because a server asks for the time before its
// libraries are ready.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile long long *seconds;

static long long ahead(void) {
	if (!seconds) {
		char *name = getenv("FREESLOT_CLOCK");
		int fd = name ? open(name, O_RDONLY) : -1;
		if (fd < 0) return 0;
		void *at = mmap(0, sizeof *seconds, PROT_READ, MAP_SHARED, fd, 0);
		close(fd);
		if (at == MAP_FAILED) return 0;
		seconds = at;
	}
	return *seconds;
}

int clock_gettime(clockid_t id, struct timespec *ts) {
	int failed = syscall(SYS_clock_gettime, id, ts);
	if (!failed && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) ts->tv_sec += ahead();
	return failed;
}

int gettimeofday(struct timeval *tv, void *zone) {
	struct timespec ts;
	clock_gettime(CLOCK_REALTIME, &ts);
	tv->tv_sec = ts.tv_sec;
	tv->tv_usec = ts.tv_nsec / 1000;
	return 0;
}

time_t time(time_t *t) {
	struct timespec ts;
	clock_gettime(CLOCK_REALTIME, &ts);
	if (t) *t = ts.tv_sec;
	return ts.tv_sec;
}
