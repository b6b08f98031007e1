#include <launcher/rendezvous/rendezvous.h>

#include <algorithm>
#include <cctype>
#include <limits>
#include <utility>

#include <sys/epoll.h>

#include <common/host_name.h>
#include <common/scheduler/launch_error.h>
#include <launcher/processes.h>
#include <launcher/rendezvous/endpoint.h>

namespace ddp {
namespace {

using Clock = std::chrono::steady_clock;
using Kind = NodeStateMachine::Action::Kind;

// The maximum size of an entry's text; JSON makes at most six bytes of one.
constexpr size_t kLongestText = 8 * 1024;
// At least the capacity of a helper's channel, with the kernel's cost of a
// message: all received messages are read before a node is reported silent.
constexpr size_t kMostBytes = 2 << 20;
constexpr size_t kMessageCost = 256;
constexpr std::chrono::milliseconds kReopenPause(200);

// As other nodes accept it: in one line, without spaces.
std::string printable_host_name() {
  std::string name = detail::host_name();
  std::replace_if(
      name.begin(),
      name.end(),
      [](unsigned char each) { return std::isgraph(each) == 0; },
      '?');
  return name.empty() ? "unnamed" : name;
}

NodeInfo node_of(const Job& job) {
  NodeInfo node;
  node.id = random_hex(8);
  node.host = printable_host_name();
  node.ranks = job.options.nproc_per_node;
  node.max_restarts = job.options.max_restarts;
  return node;
}

} // namespace

Rendezvous::Rendezvous(const Job& job)
    : job_(job),
      nodes_(job.options.nodes),
      events_(check_call(epoll_create1(EPOLL_CLOEXEC), "cannot use epoll")),
      authenticator_(nodes_.token, job_.environment.run_id),
      machine_(nodes_, node_of(job_), Clock::now()) {
  if (nodes_.several()) {
    open_log();
  } else {
    machine_.connected(job.options.master_addr, true, Clock::now());
  }
}

void Rendezvous::open_log() {
  log_ = std::make_unique<SharedLog>(
      nodes_.has_service() ? find_helper("ddprun-etcd") : job_.store_program,
      HelperOptions{machine_.self().id, job_.environment.run_id, nodes_});
  read_.clear();
  epoll_event interest{};
  interest.events = EPOLLIN;
  check_call(
      epoll_ctl(events_.get(), EPOLL_CTL_ADD, log_->fd(), &interest),
      "cannot watch the rendezvous");
}

void Rendezvous::handle_events(Time now) {
  // A writer that is faster than this loop must not keep the agent from its
  // signals and ranks.
  for (size_t taken = 0; log_ && taken < kMostBytes;) {
    const auto event = log_->next();
    if (!event) {
      break;
    }
    taken += event->text.size() + kMessageCost;
    handle(*event, now);
    carry_out(now);
  }
}

void Rendezvous::handle(const SharedLog::Event& event, Time now) {
  switch (event.kind) {
    case SharedLog::Event::Kind::kConnected:
      connected(event, now);
      break;
    case SharedLog::Event::Kind::kEntry:
      read_entry(event.text, now);
      break;
    case SharedLog::Event::Kind::kBeats:
      machine_.beats(event.beats, now);
      log_->watch(machine_.watched());
      break;
    case SharedLog::Event::Kind::kRejected:
      throw LaunchError(event.code, event.text);
    case SharedLog::Event::Kind::kUnreachable:
      machine_.log_unreachable(event.text);
      break;
    case SharedLog::Event::Kind::kLost:
      epoll_ctl(events_.get(), EPOLL_CTL_DEL, log_->fd(), nullptr);
      machine_.log_lost(event.text, now);
      break;
  }
}

void Rendezvous::connected(const SharedLog::Event& event, Time now) {
  authenticator_.set_nonce(event.text);
  log_name_ = event.text.substr(0, 16);
  log_->set_last_will(last_will());
  machine_.connected(event.own_address, event.serves, now);
}

// The entry that others read if this process dies without leaving.
std::string Rendezvous::last_will() const {
  Entry entry;
  entry.type = Entry::Type::kLost;
  entry.from = machine_.self().id;
  entry.sequence = std::numeric_limits<int64_t>::max();
  entry.about = machine_.self().id;
  entry.text = "the ddprun of node " + machine_.self().host + " died";
  return authenticator_.seal(entry_text(entry));
}

// Ignores an entry that was not sealed with the job's token, that another
// version wrote, or that is repeated.
void Rendezvous::read_entry(const std::string& sealed, Time now) {
  const auto text = authenticator_.open(sealed);
  const auto entry = text ? parse_entry(*text) : std::nullopt;
  if (!entry) {
    machine_.untrusted_entry_read();
  } else if (entry->sequence > read_[entry->from]) {
    read_[entry->from] = entry->sequence;
    machine_.entry(*entry, now);
  }
}

std::optional<Rendezvous::Time> Rendezvous::deadline() const {
  const auto due = machine_.deadline();
  return reopening_at_ && (!due || *reopening_at_ < *due) ? reopening_at_ : due;
}

void Rendezvous::tick(Time now) {
  if (reopening_at_ && now >= *reopening_at_) {
    reopening_at_.reset();
    open_log();
  }
  const auto is_due = [&] {
    const auto due = machine_.deadline();
    return due && now >= *due;
  };
  if (is_due()) {
    handle_events(now); // else a suspended agent would report others
  }
  if (is_due()) {
    machine_.tick(now);
    carry_out(now);
  }
}

std::vector<Rendezvous::Command> Rendezvous::take_commands(Time now) {
  carry_out(now);
  return std::exchange(commands_, {});
}

Listener Rendezvous::take_listener() {
  return std::exchange(ranks_store_, Listener());
}

void Rendezvous::carry_out(Time now) {
  for (auto actions = machine_.take_actions();
       !actions.empty() || !unread_.empty();
       actions = machine_.take_actions()) {
    for (const NodeStateMachine::Action& action : actions) {
      carry_out(action, now);
    }
    if (!unread_.empty()) {
      const Entry entry = std::move(unread_.front());
      unread_.pop_front();
      machine_.entry(entry, now);
    }
  }
}

void Rendezvous::carry_out(const NodeStateMachine::Action& action, Time now) {
  switch (action.kind) {
    case Kind::kPost:
      post(action.entry);
      break;
    case Kind::kOpenStore:
      open_store(now);
      break;
    case Kind::kBeginAnew: // with a new id: lost nodes cannot rejoin
      machine_ =
          NodeStateMachine(nodes_, node_of(job_), machine_.gathering_since());
      machine_.log_unreachable(action.text);
      log_.reset();
      reopening_at_ = now + kReopenPause;
      break;
    case Kind::kExit:
      if (nodes_.has_service() &&
          membership().phase == Membership::Phase::kEnded) {
        log_->leave();
      }
      [[fallthrough]];
    case Kind::kStart:
    case Kind::kStop:
    case Kind::kKill:
      commands_.push_back(action);
      break;
  }
}

void Rendezvous::open_store(Time now) {
  const LaunchOptions& options = job_.options;
  try {
    ranks_store_ = nodes_.several()
        ? listen_in_range(
              bound_address(nodes_, machine_.self().address), nodes_)
        : listen_on(options.master_addr, options.master_port);
    machine_.store_opened(ranks_store_.port, now);
  } catch (const LaunchError& error) {
    const std::string place =
        nodes_.several() ? "node " + machine_.self().host + ": " : "";
    machine_.end_job(error.exit_code(), place + error.what(), now);
  }
}

void Rendezvous::post(Entry entry) {
  if (!log_) {
    unread_.push_back(std::move(entry));
    return;
  }
  entry.sequence = ++written_;
  entry.text.resize(std::min(entry.text.size(), kLongestText));
  log_->post(authenticator_.seal(entry_text(entry)));
}

} // namespace ddp
