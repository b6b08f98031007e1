#pragma once

// The start of a job of many nodes. The nodes are threads of this process,
// which send real requests to a rendezvous on this host.

#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <set>
#include <shared_mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <launcher/rendezvous/log/log_helper.h>
#include <launcher/rendezvous/log/node_state_machine.h>

namespace ddp::test {

using Clock = std::chrono::steady_clock;
using Count = std::atomic<int64_t>;

constexpr std::chrono::seconds kBeatTime{1};

/// The maximum number of requests of each node: a constant number, blocks of
/// entries, which are rarer with more nodes, and beats.
inline double most_requests(size_t nodes, std::chrono::duration<double> time) {
  const double a_second = 4000. / static_cast<double>(nodes) + 3;
  return std::min(1000., 40 + time.count() * a_second);
}

/// The number of requests of this process and its forks to the rendezvous.
inline Count& requests() {
  static auto* count = new (mmap(
      nullptr,
      sizeof(Count),
      PROT_READ | PROT_WRITE,
      MAP_SHARED | MAP_ANONYMOUS,
      -1,
      0)) Count(0);
  return *count;
}

/// The entries that all nodes have read, which are equal for all nodes, and are
/// parsed once.
class SharedEntries {
 public:
  const Entry& take(size_t place, const std::string& text) {
    {
      const std::shared_lock<std::shared_mutex> lock(mutex_);
      if (place < entries_.size()) {
        return checked(place, text);
      }
    }
    const std::lock_guard<std::shared_mutex> lock(mutex_);
    if (place >= entries_.size()) {
      entries_.push_back(std::make_unique<Entry>(parse_entry(text).value()));
      texts_.push_back(text);
    }
    return checked(place, text);
  }

 private:
  const Entry& checked(size_t place, const std::string& text) const {
    if (texts_[place] != text) {
      std::fputs("two nodes have read different entries\n", stderr);
      std::_Exit(1);
    }
    return *entries_[place];
  }

  std::shared_mutex mutex_;
  std::vector<std::unique_ptr<Entry>> entries_;
  std::vector<std::string> texts_;
};

/// A node: its engine and its state machine. In a large job, most nodes run no
/// state machine, but act like one in a start without faults.
class ScaleNode {
 public:
  ScaleNode(
      int number,
      bool has_machine,
      const NodeOptions& options,
      std::unique_ptr<LogEngine> engine)
      : engine_(std::move(engine)),
        has_machine_(has_machine),
        serves_(number == 0 && !options.has_service()) {
    self_.id = "id" + std::to_string(100000000000000 + number);
    self_.host = "n" + std::to_string(number);
    self_.address = "10.0.0.1";
    machine_ = std::make_unique<NodeStateMachine>(options, self_, Clock::now());
  }

  void join() {
    engine_->nonce();
    beat_if_due();
    std::unique_lock<std::mutex> lock(mutex_);
    machine_->connected(self_.address, serves_, Clock::now());
    act();
    if (!has_machine_) {
      machine_.reset();
    }
    lock.unlock();
    post();
  }

  void read(SharedEntries& entries) {
    engine_->read([&, place = size_t{0}](const std::string& text) mutable {
      handle(entries.take(place++, text));
    });
  }

  void post() {
    std::unique_lock<std::mutex> lock(mutex_);
    const auto posts = std::exchange(outbox_, {});
    lock.unlock();
    for (const auto& each : posts) {
      engine_->append(each);
    }
  }

  void beat_if_due() {
    if (Clock::now() < next_beat_) {
      return;
    }
    next_beat_ = Clock::now() + kBeatTime;
    std::unique_lock<std::mutex> lock(mutex_);
    const auto ids = machine_ ? machine_->watched() : first_;
    lock.unlock();
    const std::vector<std::string> watched(ids.begin(), ids.end());
    const auto counts = engine_->beat(self_.id, ++beats_, watched);
    lock.lock();
    if (machine_) {
      std::map<std::string, int64_t> by_id;
      for (size_t i = 0; i < watched.size(); ++i) {
        by_id[watched[i]] = counts[i];
      }
      machine_->beats(by_id, Clock::now());
      act();
    }
  }

  std::atomic<bool> knows_plan{false};
  std::atomic<bool> has_started{false};

 private:
  void handle(const Entry& entry) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const size_t most = NodeOptions().most_watched;
    if (entry.type == Entry::Type::kJoin && first_.size() < most) {
      first_.insert(entry.from);
    }
    if (machine_) {
      machine_->entry(entry, Clock::now());
      act();
    } else if (entry.type == Entry::Type::kPlan) {
      Entry ready;
      ready.type = Entry::Type::kReady;
      ready.from = self_.id;
      ready.epoch = entry.epoch;
      outbox_.push_back(entry_text(ready));
    }
    knows_plan = knows_plan || entry.type == Entry::Type::kPlan;
    has_started = has_started || entry.type == Entry::Type::kStart;
  }

  void act() {
    using Kind = NodeStateMachine::Action::Kind;
    for (const auto& action : machine_->take_actions()) {
      if (action.kind == Kind::kPost) {
        outbox_.push_back(entry_text(action.entry));
      } else if (action.kind == Kind::kOpenStore) {
        machine_->store_opened(1, Clock::now());
        act();
      } else if (action.kind == Kind::kExit) {
        std::fprintf(stderr, "a node ends: %s\n", action.text.c_str());
        std::_Exit(1);
      }
    }
  }

  NodeInfo self_;
  std::unique_ptr<LogEngine> engine_;
  bool has_machine_ = true;
  bool serves_ = false; // the log, as far as the others know
  Clock::time_point next_beat_;
  int64_t beats_ = 0;
  std::mutex mutex_;
  std::unique_ptr<NodeStateMachine> machine_;
  std::vector<std::string> outbox_;
  std::set<std::string> first_; // ids of nodes
};

/// Sets small stacks for threads, and raises the limit of open files.
inline void allow_many() {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 256 * 1024);
  pthread_setattr_default_np(&attributes);
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
}

/// Makes the engine of the node with this number.
using MakeEngine = std::function<std::unique_ptr<LogEngine>(int)>;

/// Starts a job of `count` nodes, and prints a row of docs/launching.md.
class ScaleJob {
 public:
  ScaleJob(int count, NodeOptions options, MakeEngine make_engine)
      : options_(std::move(options)),
        make_engine_(std::move(make_engine)),
        nodes_(count) {
    options_.least = options_.most = count;
    options_.node_timeout = std::chrono::minutes(5); // for few processors
    options_.join_timeout = std::chrono::hours(1);
  }

  [[noreturn]] void run() {
    constexpr int kWorkers = 16;
    const auto start = Clock::now();
    connect(0); // the leader
    std::vector<std::thread> workers;
    for (int i = 0; i < kWorkers; ++i) {
      workers.emplace_back([this, i] { serve_each(i, kWorkers); });
    }
    wait_for(&ScaleNode::knows_plan);
    const std::chrono::duration<double> plan = Clock::now() - start;
    wait_for(&ScaleNode::has_started);
    const std::chrono::duration<double> all = Clock::now() - start;
    const auto each = static_cast<double>(requests()) / nodes_.size();
    std::printf(
        "| %zu | %.1f s | %.1f s | %lld | %.0f |\n",
        nodes_.size(),
        plan.count(),
        all.count(),
        static_cast<long long>(requests()),
        each);
    std::fflush(stdout);
    std::_Exit(each > most_requests(nodes_.size(), all) ? 1 : 0);
  }

 private:
  void connect(size_t i) {
    constexpr size_t kMachines = 128;
    auto node = std::make_unique<ScaleNode>(
        i, i < kMachines, options_, make_engine_(static_cast<int>(i)));
    node->join();
    std::thread([this, it = node.get()] { it->read(entries_); }).detach();
    const std::lock_guard<std::mutex> lock(mutex_);
    nodes_[i] = std::move(node);
  }

  void serve_each(size_t first, size_t step) {
    std::vector<ScaleNode*> own;
    for (;;) {
      const size_t next = first + step * own.size();
      if (next < nodes_.size()) {
        if (next > 0) {
          connect(next);
        }
        own.push_back(nodes_[next].get());
      }
      for (ScaleNode* each : own) {
        each->post();
        each->beat_if_due();
      }
      std::this_thread::sleep_for(
          std::chrono::milliseconds(next < nodes_.size() ? 0 : 1));
    }
  }

  void wait_for(std::atomic<bool> ScaleNode::*has) {
    for (size_t known = 0; known < nodes_.size();) {
      std::unique_lock<std::mutex> lock(mutex_);
      while (known < nodes_.size() && nodes_[known] &&
             nodes_[known].get()->*has) {
        ++known;
      }
      lock.unlock();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  NodeOptions options_;
  MakeEngine make_engine_;
  SharedEntries entries_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<ScaleNode>> nodes_;
};

} // namespace ddp::test
