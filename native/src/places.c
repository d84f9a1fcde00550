/* Places of ranks: what a program that lets them be changed reads between iterations. */
#include "atomics.h"
#include "whichrank/ring.h"

void wr_places_offer(wr_ring *ring, const wr_places *offered) {
  wr_places *places = &ring->places;
  STORE(&places->stages, offered->stages);
  STORE(&places->stage_stride, offered->stage_stride);
  STORE(&places->replicas, offered->replicas);
  STORE(&places->replica_stride, offered->replica_stride);
  STORE(&places->microbatches, offered->microbatches);
  STORE(&places->saves, offered->saves);
  STORE(&places->bytes, offered->bytes);
  STORE_RELEASE(&places->ranks, offered->ranks);
}

uint32_t wr_places_newest(const wr_ring *ring) { return LOAD_ACQUIRE(&ring->places.newest); }

uint32_t wr_places_of(const wr_ring *ring, uint32_t version) { return LOAD(&ring->places.told[version % 2]); }

void wr_places_used(wr_ring *ring, uint32_t version, uint32_t place, uint32_t took_ms, int failed) {
  STORE(&ring->places.place, place);
  STORE(&ring->places.took_ms, took_ms);
  STORE(&ring->places.failed, failed ? version : 0);
  STORE_RELEASE(&ring->places.used, version);
}
