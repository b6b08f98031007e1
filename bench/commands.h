#pragma once

#include <string>
#include <vector>

namespace bench {

using Arguments = std::vector<std::string>;

/// Compares training steps of ddp with others: step SECONDS NAME...
void measure_steps(const Arguments& arguments);

/// Measures only all-reduces: all_reduce SECONDS BACKEND...
void measure_all_reduce(const Arguments& arguments);

/// Measures checkpoints of 105 MB: checkpoint SECONDS FOLDER
void measure_checkpoints(const Arguments& arguments);

/// Measures drawing an epoch's indices: sampler SAMPLES ROUNDS
void measure_sampler(const Arguments& arguments);

/// Measures epochs of data loaders: loader SECONDS WORKERS...
void measure_loader(const Arguments& arguments);

/// Measures the memory of a rank that trains big100: memory local|BACKEND|c10d
void measure_memory(const Arguments& arguments);

/// Measures the costs of many ranks on one host: ranks SIZE BACKEND PORT
void measure_ranks(const Arguments& arguments);

/// Measures all-reduces and steps between hosts for wire.py: wire MBIT
/// LAST_SIZE|all
void measure_wire(const Arguments& arguments);

} // namespace bench
