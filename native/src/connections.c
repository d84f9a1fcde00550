/* Transport counters as the core exports them: for sensors that link to it, and for the tests. */
#include "atomics.h"
#include "whichrank/transport.h"

void wr_frame_count(wr_ring *ring, int connection, int received) { wr_frame_count_inline(ring, connection, received); }

void wr_arrivals(const wr_ring *ring, wr_pace paces[WR_PACES]) {
  for (int i = 0; i < WR_PACES; i++) {
    paces[i].bytes = paces[i].ns = 0;
    for (int row = 0; row < WR_CONNECTIONS; row++) {
      paces[i].bytes += LOAD(&ring->connection[row].pace[i].bytes);
      paces[i].ns += LOAD(&ring->connection[row].pace[i].ns);
    }
  }
}
