#pragma once

// What docs/pitfalls.md says, for the tests that compare it.

#include <map>
#include <string>

namespace ddp::test {

/// Of the file at a path from the root.
std::string content_of(const std::string& path);

/// The page's messages by their titles.
std::map<std::string, std::string> messages();

/// With single spaces, for the page breaks lines.
std::string one_line(const std::string& text);

/// Whether `text` is `pattern`, in which "..." stands for anything.
bool fits(const std::string& text, const std::string& pattern);

} // namespace ddp::test
