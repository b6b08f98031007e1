#pragma once

#include <tests/launcher/simulated_nodes.h>
#include <tests/support/catch_plain.h>
#include <tests/support/process.h>

inline SimulatedOptions settings(int least, int most, int restarts = 0) {
  SimulatedOptions settings;
  settings.least = least;
  settings.most = most;
  settings.max_restarts = restarts;
  return settings;
}

/// The same settings with a service that keeps the log.
inline SimulatedOptions at_server(SimulatedOptions settings) {
  settings.etcd.resize(1);
  return settings;
}

/// Simulated nodes that exist from the start; the first node serves the log if
/// no service does.
struct SimulatedJob : SimulatedNodes {
  SimulatedJob(const SimulatedOptions& settings, int nodes, unsigned seed = 1)
      : SimulatedNodes(settings, seed) {
    for (int i = 0; i < nodes; ++i) {
      add_node(i == 0 && !settings.has_service());
    }
  }

  /// The nodes whose ranks run, as text.
  std::string running() const {
    std::string text;
    for (int i = 0; i < count(); ++i) {
      if (lives(i) && node(i).epoch != 0) {
        text += std::to_string(i);
      }
    }
    return text;
  }
};

#define REQUIRE_RUNNING(job, nodes)                 \
  do {                                              \
    INFO((job).history());                          \
    REQUIRE((job).faults().empty());                \
    REQUIRE((job).running() == std::string(nodes)); \
  } while (false)
