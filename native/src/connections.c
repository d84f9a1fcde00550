/* Transport counters as the core exports them: for sensors that link to it, and for the tests. */
#include "whichrank/transport.h"

void wr_frame_count(wr_ring *ring, int connection, int received) { wr_frame_count_inline(ring, connection, received); }
