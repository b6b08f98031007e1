#pragma once

#include <sys/types.h>

/// What a rank of ddp_bench_launch writes at the start of main().
struct StartRecord {
  pid_t pid;
  long long nanoseconds; // CLOCK_MONOTONIC
};

/// Variables that name the pipe it writes to, and the one at whose end it
/// leaves (unset: at once).
constexpr const char* kStartedPipe = "DDP_BENCH_STARTED_PIPE";
constexpr const char* kHoldPipe = "DDP_BENCH_HOLD_PIPE";
