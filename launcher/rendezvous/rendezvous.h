#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <common/file_descriptor.h>
#include <launcher/background_task.h>
#include <launcher/listener.h>
#include <launcher/rendezvous/authentication.h>
#include <launcher/rendezvous/log/member.h>
#include <launcher/rendezvous/log/shared_log.h>
#include <launcher/rendezvous/node_options.h>
#include <launcher/rendezvous/place.h>

namespace ddp {

/// This node's part in a job of several: does what its Member decides, but for
/// the ranks, which are the agent's.
class Rendezvous {
 public:
  using Time = Member::Time;

  struct Settings {
    NodeOptions nodes;
    int ranks = 1; // of this node
    int max_restarts = 0;
    std::string run_id;
    std::string store_program;
  };

  /// What the agent is to do.
  struct Order {
    enum class Kind {
      kStart, // the ranks of membership().plan(), on the node in place `index`
      kStop, // them; `text` says why
      kKill, // them, which were to stop
      kExit, // with `code`; `text` says why, where no rank's failure does
    };
    Kind kind = Kind::kStart;
    int index = 0;
    int code = 0;
    std::string text;
  };

  /// Starts to find out where the job's log is, or is to be served by this
  /// node; handle_events() throws LaunchError where that cannot be.
  explicit Rendezvous(Settings settings);

  /// Becomes readable when handle_events() has something to do.
  int fd() const {
    return events_.get();
  }
  void handle_events(Time now);
  /// When tick() wants to be called.
  std::optional<Time> deadline() const;
  void tick(Time now);
  std::vector<Order> take_orders();

  /// Where the ranks of the plan's first node serve their store.
  Listener take_listener();

  // What the agent tells; see Member.
  void rank_failed(int code, bool is_consequence, std::string text, Time now);
  void ranks_ended(bool succeeded, Time now);
  void leave(int code, const std::string& text, Time now);
  void end_job(int code, const std::string& text, Time now);

  /// The processes that speak to logs' stores.
  std::vector<pid_t> helpers() const;
  const Membership& membership() const {
    return member_.membership();
  }
  const Member& member() const {
    return member_;
  }
  /// Of the job's log alone.
  const std::string& log_name() const {
    return log_name_;
  }

 private:
  void look_for_place();
  void found_place(Time now);
  void serve_log(Listener listener);
  void look_for_log(Time now);
  void watch(int fd);
  // Serves it where there is a listener.
  void open_log(std::vector<SocketAddress> endpoints, FileDescriptor listener);
  void handle(const SharedLog::Event& event, Time now);
  void read_entry(const std::string& sealed, Time now);
  void connected(const SharedLog::Event& event, Time now);
  std::string last_will() const;
  void open_store(Time now);
  void carry_out(Time now);
  void post(Entry entry);

  Settings settings_;
  std::optional<BackgroundTask<Place>> place_; // while it is being found
  bool is_endpoint_here_ = false;
  std::string log_name_;
  std::string own_address_; // for others, where it was given
  FileDescriptor events_;
  Authenticator authenticator_;
  std::unique_ptr<SharedLog> log_; // null until the place is known
  Member member_;
  Listener ranks_store_;
  std::map<std::string, int64_t> read_; // the last sequence by writer
  int64_t written_ = 0;
  std::vector<std::string> watched_;
  std::vector<Order> orders_;
  std::optional<Time> retry_at_; // to serve the log
};

} // namespace ddp
