#pragma once

#include <string>
#include <vector>

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

} // namespace ddp
