/* Threads of the agent, which serve it beside its own: the sampler and the watch. */
#define _GNU_SOURCE 1
#include <signal.h>
#include <time.h>

#include "helper.h"

int wr_helper_start(pthread_t *thread, pthread_cond_t *wake, void *(*run)(void *)) {
  pthread_condattr_t monotonic;
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_cond_init(wake, &monotonic);
  pthread_condattr_destroy(&monotonic);
  sigset_t all, before; /* signals are for the agent's own threads */
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int failed = pthread_create(thread, NULL, run, NULL);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (failed) pthread_cond_destroy(wake);
  return failed;
}
