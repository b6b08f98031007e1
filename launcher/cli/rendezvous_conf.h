#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include <launcher/cli/options/option.h>
#include <launcher/rendezvous/node_options.h>

namespace ddp {

/// What --rdzv-conf says that means something to ddprun.
struct RendezvousConf {
  std::optional<bool> is_host;
  std::optional<std::chrono::milliseconds> join_timeout;
  std::optional<std::chrono::milliseconds> last_call;
  EtcdAccess etcd_access;
};

/// Reads "name=value,name=value"; notes names that are not known. Throws
/// LaunchError (exit code 2) for texts of another form, and for values that a
/// name cannot have.
RendezvousConf rendezvous_conf_of(
    const OptionValue& value,
    std::vector<std::string>* notes);

} // namespace ddp
