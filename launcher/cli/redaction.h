#pragma once

#include <string>
#include <vector>

#include <common/scheduler/rank_environment.h>
#include <launcher/affinity/cpu_binding.h>

namespace ddp {

/// What stands in the place of a secret.
constexpr const char* kRedacted = "***";

/// Whether a variable or option of this name looks as if it held a secret: it
/// has TOKEN, KEY, SECRET, PASSWORD, PASSWD or CREDENTIAL in it, in any case.
/// (TOKENIZER is no TOKEN.)
bool names_secret(const std::string& name);

/// "NAME=value" with *** for the value where the name looks secret; so do
/// "--env=NAME=value" and "--some-key=value". Of a URL's "user:password@" the
/// password is replaced.
std::string redacted(const std::string& assignment);

/// A command line with *** for what looks secret: in --some-key=value,
/// NAME=value and --some-key value.
std::vector<std::string> redacted_arguments(
    const std::vector<std::string>& arguments);

/// What --dry-run prints of a rank: a line that a shell can run, with the
/// variables that ddprun sets, and beside its name where it would be bound to.
/// Values of variables and options that look secret are shown as ***.
std::string describe_rank(
    const std::string& name,
    const std::vector<std::string>& arguments,
    const Variables& environment,
    const RankPlace* place);

/// The text as one word of a shell.
std::string shell_word(const std::string& text);

} // namespace ddp
