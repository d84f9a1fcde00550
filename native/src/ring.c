/* Life of a ring: create, find, switch off, close; the heartbeat thread; notes that outlive the process. */
#define _GNU_SOURCE 1
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "atomics.h"
#include "internal.h"
#include "whichrank/ring.h"

static wr_ring *process_ring;
static void (*beat_hook)(void);
static pthread_t beat_thread;
static uint32_t beat_running;

/* A forked child shares the mapping but is not the rank: it must never write. */
static void forget_in_child(void) {
  STORE(&process_ring, NULL);
  STORE(&beat_running, 0u);
  wr_forget_thread();
  wr_forget_communicators();
}

static uint64_t clock_ns(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

static void copy_text(char *to, size_t size, const char *from) {
  size_t n = from ? strnlen(from, size - 1) : 0;
  if (n) memcpy(to, from, n);
  memset(to + n, 0, size - n);
}

/* Field 22 of /proc/self/stat, counted from behind the last ')', since a name may hold anything. */
static uint64_t start_ticks(void) {
  char text[1024];
  int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  ssize_t n = read(fd, text, sizeof text - 1);
  close(fd);
  if (n <= 0) return 0;
  text[n] = 0;
  char *at = strrchr(text, ')');
  for (int field = 2; at && field < 22; field++) at = strchr(at + 1, ' ');
  return at ? strtoull(at + 1, NULL, 10) : 0;
}

wr_ring *wr_ring_create(const char *path, const wr_identity *identity) {
  static uint32_t fork_handler;
  uint32_t unset = 0;
  int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return NULL;
  int failed, tries = 0;
  do failed = posix_fallocate(fd, 0, sizeof(wr_ring)); /* tmpfs gives up at a signal */
  while (failed == EINTR && ++tries < 100);
  void *map = failed ? MAP_FAILED : mmap(NULL, sizeof(wr_ring), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
  if (map == MAP_FAILED) {
    int why = failed ? failed : errno;
    close(fd);
    unlink(path);
    errno = why;
    return NULL;
  }
  close(fd);
  wr_ring *ring = map;
  wr_header *h = &ring->header;
  h->version = WR_VERSION;
  h->header_bytes = sizeof(wr_header);
  h->total_bytes = sizeof(wr_ring);
  h->pid = getpid();
  h->rank = identity->rank;
  h->local_rank = identity->local_rank;
  h->world_size = identity->world_size;
  h->local_world_size = identity->local_world_size;
  h->restart_count = identity->restart_count;
  h->pid_start_ticks = start_ticks();
  h->created_monotonic_ns = clock_ns(CLOCK_MONOTONIC);
  h->created_realtime_ns = clock_ns(CLOCK_REALTIME);
  h->heartbeat_ns = h->created_monotonic_ns;
  copy_text(h->host, sizeof h->host, identity->host);
  copy_text(h->job, sizeof h->job, identity->job);
  ring->frame.channels = WR_FRAME_CHANNELS;
  STORE_RELEASE(&h->magic, WR_MAGIC);
  if (wr_cas32(&fork_handler, &unset, 1)) pthread_atfork(NULL, NULL, forget_in_child);
  STORE_RELEASE(&process_ring, ring);
  return ring;
}

/* hot */

wr_ring *wr_process_ring(void) { return LOAD_ACQUIRE(&process_ring); }

/* end hot */

void wr_ring_disable(void) {
  STORE_RELEASE(&process_ring, NULL);
  STORE(&beat_running, 0u);
}

void wr_ring_close(void) {
  wr_ring *ring = wr_process_ring();
  if (ring) STORE(&ring->header.closed_ns, wr_now_ns());
}

void wr_ring_set_rank(wr_ring *ring, int32_t rank, int32_t world_size) {
  STORE(&ring->header.rank, rank);
  STORE(&ring->header.world_size, world_size);
}

void wr_sensor_set(wr_ring *ring, int sensor, int state, const char *message) {
  if (sensor < 0 || sensor >= WR_SENSORS) return;
  copy_text(ring->header.sensor[sensor].message, sizeof ring->header.sensor[sensor].message, message);
  STORE_RELEASE(&ring->header.sensor[sensor].state, (uint32_t)state);
}

/* The first note stands: what follows it is mostly its consequence. Its time is written last, so that a reader who
 * sees the time sees the text; 1 ns holds the place meanwhile. */
static void note_once(uint64_t *at, char *to, size_t size, const char *text, uint64_t when_ns) {
  uint64_t none = 0;
  if (!wr_cas64(at, &none, 1)) return;
  copy_text(to, size, text);
  STORE_RELEASE(at, when_ns);
}

/* When an exception was raised that is told now. The error of an operation reaches the thread that waits for its
 * future, and the sensor's callback, at the same time: while operations are in flight, the failure that raised this
 * exception may not be noted yet, so it is waited for, and then comes first. Cold: the rank ends. */
static uint64_t time_of_exception(const wr_ring *ring) {
  const struct timespec pause = {0, 1000 * 1000};
  uint64_t told = wr_now_ns();
  if (LOAD_ACQUIRE(&ring->header.first_failure_ns) > 1) return told;
  for (int ms = 0; ms < 50 && LOAD(&ring->inflight_used); ms++) {
    nanosleep(&pause, NULL);
    if (LOAD_ACQUIRE(&ring->header.first_failure_ns) > 1) return wr_now_ns();
  }
  return told;
}

void wr_note_exception(wr_ring *ring, const char *text) {
  note_once(&ring->header.exception_ns, ring->header.exception, sizeof ring->header.exception, text,
            time_of_exception(ring));
}

void wr_note_failure(wr_ring *ring, const char *text) {
  note_once(&ring->header.first_failure_ns, ring->header.failure, sizeof ring->header.failure, text, wr_now_ns());
}

void wr_phase_set(wr_ring *ring, const char *phase) {
  copy_text(ring->header.phase, sizeof ring->header.phase, phase);
  STORE(&ring->header.phase_since_ns, phase && *phase ? wr_now_ns() : 0);
}

void wr_collected(wr_ring *ring, uint64_t ns) { ADD(&ring->header.collected_ns, ns); }

static void *beat(void *argument) {
  wr_ring *ring = argument;
  const struct timespec period = {0, 100 * 1000 * 1000};
  prctl(PR_SET_NAME, "whichrank-beat");
  while (LOAD(&beat_running)) {
    STORE(&ring->header.heartbeat_ns, wr_now_ns());
    void (*hook)(void) = LOAD(&beat_hook);
    if (hook) hook();
    nanosleep(&period, NULL);
  }
  return NULL;
}

int wr_heartbeat_start(wr_ring *ring, void (*on_beat)(void)) {
  uint32_t stopped = 0;
  if (!wr_cas32(&beat_running, &stopped, 1)) return 0;
  STORE(&beat_hook, on_beat);
  /* The thread must never be the one that takes the program's signals. */
  sigset_t all, before;
  pthread_attr_t attributes;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 256 * 1024);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  int failed = pthread_create(&beat_thread, &attributes, beat, ring);
  pthread_attr_destroy(&attributes);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (failed) STORE(&beat_running, 0u);
  return failed;
}
