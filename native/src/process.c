/* One ring per process: made once, by whichever sensor comes first, and shared with the preloaded socket sensor. */
#define _GNU_SOURCE 1
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "atomics.h"
#include "internal.h"
#include "whichrank/ring.h"

/* Sensors in libraries of their own are given the ring as soon as there is one, if they are loaded by then. */
static const char *const attached[] = {"wr_socket_attach"};

static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;
static int32_t tried_by_pid; /* a forked child may try for itself */
static uint32_t fork_handler;

static void unlock_in_child(void) { making = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER; }

wr_ring *wr_open_process_ring(const char *dir, const wr_identity *identity, void (*on_beat)(void)) {
  uint32_t unset = 0;
  if (wr_cas32(&fork_handler, &unset, 1)) pthread_atfork(NULL, NULL, unlock_in_child);
  pthread_mutex_lock(&making);
  wr_ring *ring = wr_process_ring();
  if (!ring && tried_by_pid != getpid()) {
    char path[512];
    tried_by_pid = getpid();
    snprintf(path, sizeof path, "%s/%d.ring", dir, (int)getpid());
    unlink(path); /* left by a dead process that had this pid: pids are unique among the living */
    ring = wr_ring_create(path, identity);
    if (ring) {
      wr_guard_mapping(ring);
      for (size_t i = 0; i < sizeof attached / sizeof *attached; i++) {
        void (*attach)(wr_ring *) = (void (*)(wr_ring *))dlsym(RTLD_DEFAULT, attached[i]);
        if (attach) attach(ring);
      }
      wr_heartbeat_start(ring, on_beat);
    } else {
      fprintf(stderr, "whichrank: no ring in %s (%s); this process runs on unobserved. 'whichrank doctor' tells more.\n",
              dir, strerror(errno));
    }
  }
  pthread_mutex_unlock(&making);
  return ring;
}
