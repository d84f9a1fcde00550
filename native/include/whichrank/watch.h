/* The watch loop: looks at the rings of a node for the agent while all is well, and wakes it when something may matter.
 *
 * A look takes microseconds where the agent's own snapshot takes milliseconds: it reads of each ring the words that say
 * whether anything has changed for the worse, and compares. What to make of it is the agent's matter.
 */
#ifndef WHICHRANK_WATCH_H
#define WHICHRANK_WATCH_H

#include "whichrank/ring.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A rank as the agent's latest snapshot had it. */
typedef struct {
  int32_t ring_fd, stat_fd; /* its ring, and /proc/PID/stat; they stay open until `wr_watch_disarm` */
  uint64_t head;            /* records pushed */
  uint64_t marks;           /* sum of closed_ns, exception_ns, first_failure_ns and init_ns of its header */
} wr_watched;

/* Start the thread. It looks every `every_ms`, and adds to the eventfd `wake_fd` when, of any ring, an operation has been
 * in flight or a thread has been blocked for `longest_ms`, as many records were pushed since the snapshot as `arm` says, a
 * mark has changed, the process does not run normally, or nothing can be read. 0, or an errno value (EINVAL, EALREADY, or
 * what pthread_create says). */
WR_API int wr_watch_start(int wake_fd, uint32_t every_ms, uint32_t longest_ms);
/* Look at these ranks from now on, until one matters. 0, or EINVAL (no thread, no records), ENOMEM. */
WR_API int wr_watch_arm(const wr_watched *ranks, size_t count, uint64_t most_records);
/* Look no more; when this returns no look is under way. */
WR_API void wr_watch_disarm(void);
/* End the thread. */
WR_API void wr_watch_stop(void);

#ifdef __cplusplus
}
#endif
#endif
