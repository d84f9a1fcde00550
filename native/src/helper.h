/* A thread of the agent that takes no signals. */
#ifndef WHICHRANK_HELPER_H
#define WHICHRANK_HELPER_H

#include <pthread.h>

/* Start `run`, and make `wake`, whose timed waits are by CLOCK_MONOTONIC. 0, or what pthread_create says. */
int wr_helper_start(pthread_t *thread, pthread_cond_t *wake, void *(*run)(void *));

#endif
