#pragma once

#include <string>
#include <vector>

#include <common/scheduler/rank_environment.h>
#include <launcher/affinity/cpu_binding.h>

namespace ddp {

/// The replacement for a secret.
constexpr const char* kRedacted = "***";

/// Whether the name of a variable or option suggests a secret: it contains
/// TOKEN, KEY, SECRET, PASSWORD, PASSWD or CREDENTIAL, in upper or lower case.
/// (TOKENIZER does not count as TOKEN.)
bool names_secret(const std::string& name);

/// "NAME=value", "--env=NAME=value" or "--some-key=value", with *** for the
/// value if the name suggests a secret. The password in a URL's
/// "user:password@" is replaced, too.
std::string redacted(const std::string& assignment);

/// A command line with *** for values of names that suggest a secret: in
/// --some-key=value, NAME=value and --some-key value.
std::vector<std::string> redacted_arguments(
    const std::vector<std::string>& arguments);

/// The output of --dry-run for a rank: a line that a shell can run, with the
/// variables that ddprun sets, and the rank's name and place. Values of
/// variables and options whose names suggest a secret are shown as ***.
std::string describe_rank(
    const std::string& name,
    const std::vector<std::string>& arguments,
    const Variables& environment,
    const RankPlace* place);

/// The text, quoted as one word for a shell.
std::string shell_word(const std::string& text);

} // namespace ddp
