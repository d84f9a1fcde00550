/* The watch loop. It runs in the agent, never in a rank, so it may lock, allocate and call the kernel.
 *
 * It reads with pread, as the sampler does, since a ring may be truncated under it. A process is asked after only when
 * its heartbeat is late: the sensor's own thread writes it every 100 ms, and stops when the process is stopped. Reading
 * /proc costs ten times what reading a ring does.
 */
#define _GNU_SOURCE 1
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "atomics.h"
#include "helper.h"
#include "whichrank/watch.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed;
static pthread_t thread;
static int running, armed, wake_fd = -1;
static uint64_t every_ns, longest_ns, most_records;
static wr_watched *watched;
static size_t watched_count;

static const uint64_t SECOND_NS = 1000 * 1000 * 1000;
static const uint64_t MS_NS = 1000 * 1000;
static const uint64_t LATE_NS = 350 * 1000 * 1000; /* of a heartbeat: three are missing */

/* The beginning of a ring, as `wr_ring` has it, with the operations that a rank mostly has in flight: the lowest free
   row is claimed. It is read at once, since a call of the kernel costs more than these bytes do. */
enum { AT_ONCE = 8 };
typedef struct {
  wr_header header;
  unsigned char frame[offsetof(wr_ring, inflight_used) - sizeof(wr_header)];
  uint64_t inflight_used; /* rows that are claimed, as bit maps */
  uint32_t waits_used, other[3];
  wr_inflight inflight[AT_ONCE];
} beginning;

WR_ASSERT(offsetof(beginning, waits_used) == offsetof(wr_ring, waits_used), "bit maps");
WR_ASSERT(offsetof(beginning, inflight) == offsetof(wr_ring, inflight), "operations in flight");

static int read_at(int fd, void *to, size_t size, size_t offset) {
  return pread(fd, to, size, (off_t)offset) == (ssize_t)size;
}

static int lasts(uint64_t since, uint64_t now) { return since && now > since && now - since >= longest_ns; }

/* 1: some operation in flight or some wait lasts; 0: none; -1: it cannot be read. */
static int any_lasts(int fd, const beginning *ring, uint64_t now) {
  wr_inflight other;
  wr_wait wait;
  for (int i = 0; i < WR_INFLIGHT; i++) {
    if (!(ring->inflight_used >> i & 1)) continue;
    size_t at = offsetof(wr_ring, inflight) + (size_t)i * sizeof other;
    if (i >= AT_ONCE && !read_at(fd, &other, sizeof other, at)) return -1;
    const wr_inflight *op = i < AT_ONCE ? &ring->inflight[i] : &other;
    if (op->state && lasts(op->t_issue_ns, now)) return 1;
  }
  for (int i = 0; i < WR_WAITS; i++) {
    if (!(ring->waits_used >> i & 1)) continue;
    if (!read_at(fd, &wait, sizeof wait, offsetof(wr_ring, wait) + (size_t)i * sizeof wait)) return -1;
    if (wait.tid && lasts(wait.since_ns, now)) return 1;
  }
  return 0;
}

/* Whether the process is running, sleeping or waiting for a disk, by the letter behind its name in /proc/PID/stat. */
static int is_well(int stat_fd) {
  char text[512];
  ssize_t n = pread(stat_fd, text, sizeof text - 1, 0);
  if (n <= 0) return 0;
  text[n] = 0;
  const char *end = strrchr(text, ')'); /* the name may hold anything */
  return end && end[1] == ' ' && end[2] && strchr("RSDI", end[2]);
}

static int matters(const wr_watched *rank, uint64_t now) {
  beginning ring;
  if (!read_at(rank->ring_fd, &ring, sizeof ring, 0) || ring.header.magic != WR_MAGIC) return 1;
  const wr_header *h = &ring.header;
  if (h->closed_ns + h->exception_ns + h->first_failure_ns + h->init_ns != rank->marks) return 1;
  if (h->head - rank->head >= most_records) return 1;
  if (any_lasts(rank->ring_fd, &ring, now)) return 1;
  int is_late = now > h->heartbeat_ns && now - h->heartbeat_ns >= LATE_NS;
  return is_late && !is_well(rank->stat_fd);
}

static void look(void) {
  uint64_t now = wr_now_ns(), one = 1;
  for (size_t i = 0; i < watched_count; i++) {
    if (!matters(&watched[i], now)) continue;
    armed = 0;
    while (write(wake_fd, &one, sizeof one) < 0 && errno == EINTR) {}
    return;
  }
}

/* Wait, unlocked, until `at`, or something was asked of us. */
static void wait_until(uint64_t at) {
  struct timespec t = {(time_t)(at / SECOND_NS), (long)(at % SECOND_NS)};
  while (running && armed && wr_now_ns() < at)
    if (pthread_cond_timedwait(&changed, &lock, &t) == ETIMEDOUT) break;
}

static void *run(void *unused) {
  (void)unused;
  prctl(PR_SET_NAME, "whichrank-watch");
  pthread_mutex_lock(&lock);
  while (running) {
    if (!armed) {
      pthread_cond_wait(&changed, &lock);
      continue;
    }
    wait_until(wr_now_ns() + every_ns);
    if (running && armed) look();
  }
  pthread_mutex_unlock(&lock);
  return NULL;
}

int wr_watch_start(int fd, uint32_t every_ms, uint32_t longest_ms) {
  if (fd < 0 || !every_ms || !longest_ms) return EINVAL;
  pthread_mutex_lock(&lock);
  int failed = running ? EALREADY : 0;
  if (!failed) {
    wake_fd = fd;
    every_ns = every_ms * MS_NS;
    longest_ns = longest_ms * MS_NS;
    armed = 0;
    running = 1;
    failed = wr_helper_start(&thread, &changed, run);
    if (failed) running = 0;
  }
  pthread_mutex_unlock(&lock);
  return failed;
}

static int arm_locked(const wr_watched *ranks, size_t count, uint64_t records) {
  if (!running || !records) return EINVAL;
  if (count > watched_count) {
    wr_watched *room = realloc(watched, count * sizeof *room);
    if (!room) return ENOMEM;
    watched = room;
  }
  if (count) memcpy(watched, ranks, count * sizeof *ranks);
  watched_count = count;
  most_records = records;
  armed = 1;
  pthread_cond_signal(&changed);
  return 0;
}

int wr_watch_arm(const wr_watched *ranks, size_t count, uint64_t records) {
  pthread_mutex_lock(&lock);
  int failed = arm_locked(ranks, count, records);
  pthread_mutex_unlock(&lock);
  return failed;
}

void wr_watch_disarm(void) {
  pthread_mutex_lock(&lock);
  armed = 0;
  pthread_mutex_unlock(&lock);
}

void wr_watch_stop(void) {
  pthread_mutex_lock(&lock);
  int was = running;
  running = armed = 0;
  if (was) pthread_cond_signal(&changed);
  pthread_mutex_unlock(&lock);
  if (!was) return;
  pthread_join(thread, NULL);
  pthread_cond_destroy(&changed);
  free(watched);
  watched = NULL;
  watched_count = 0;
}
