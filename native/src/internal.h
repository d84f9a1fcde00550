/* What the files of the core tell each other and nobody else. */
#ifndef WHICHRANK_INTERNAL_H
#define WHICHRANK_INTERNAL_H

#include "whichrank/ring.h"

/* Called in a forked child, which may become a rank of its own: nothing of the parent's may linger. */
void wr_forget_thread(void);
void wr_forget_communicators(void);

/* Keep the process alive if somebody truncates the ring's file under it. */
void wr_guard_mapping(const wr_ring *ring);

#endif
