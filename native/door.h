// The way to the shared block: a socket at its path, over which the broker hands out its memory. The memory is sealed, so
// that nobody can take pages away from under a program that maps it. src/headway/live/kernels/block_socket.py is the other side.
#pragma once

#include "protocol.h"

namespace headway {

// Why there is no block: nothing or nobody there, another version's, another user's, or no answer (yet).
enum class Missing { kNot, kNone, kVersion, kRefused, kSilent };

// Maps the block behind that path; null, and why, where there is none. Waits so long for an answer; one that has not come
// by then is taken up by the next call.
Block* ask_for_block(const char* path, int wait_ms, Missing* why);

// What lies at that path now: another number for each door that was ever there, 0 for nothing.
uint64_t door_at(const char* path);

// Gives the memory of a block back. Its addresses stay good, and read zero: other threads may still look there.
void retire_block(Block* block);

// After a fork: an answer that is awaited is the parent's.
void forget_door();

}  // namespace headway
