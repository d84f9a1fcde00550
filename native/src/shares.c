/* Shares of the work: what a program that lets them be changed reads, once in an iteration. */
#include "atomics.h"
#include "whichrank/ring.h"

void wr_shares_offer(wr_ring *ring, uint32_t microbatches, uint32_t multiple, uint32_t replica, uint32_t replicas) {
  STORE_RELEASE(&ring->shares.microbatches, 0); /* what was told to an earlier one means nothing to this one */
  STORE(&ring->shares.newest, 0);
  STORE(&ring->shares.used, 0);
  STORE(&ring->shares.multiple, multiple);
  STORE(&ring->shares.replica, replica);
  STORE(&ring->shares.replicas, replicas);
  STORE_RELEASE(&ring->shares.microbatches, microbatches);
}

uint32_t wr_shares_newest(const wr_ring *ring) { return LOAD_ACQUIRE(&ring->shares.newest); }

wr_share wr_shares_of(const wr_ring *ring, uint32_t version) {
  const wr_share *told = &ring->shares.told[version % 2];
  wr_share share = {LOAD(&told->first), LOAD(&told->count)};
  return share;
}

void wr_shares_use(wr_ring *ring, uint32_t version) { STORE_RELEASE(&ring->shares.used, version); }
