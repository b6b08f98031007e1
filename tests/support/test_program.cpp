// Catch2 2 has its implementation in the header, compiled only here.
#if __has_include(<catch2/catch_all.hpp>)
#else
#define CATCH_CONFIG_EXTERNAL_INTERFACES
#define CATCH_CONFIG_RUNNER
#endif
#include <tests/support/skip.h>
#include <tests/support/test_program.h>

namespace ddp::test {
namespace {

std::atomic<bool> failed{false};

#if __has_include(<catch2/catch_all.hpp>)
struct Listener : Catch::EventListenerBase {
  using EventListenerBase::EventListenerBase;
  void assertionEnded(const Catch::AssertionStats& stats) override {
    failed = failed || !stats.assertionResult.isOk();
  }
};
#else
struct Listener : Catch::TestEventListenerBase {
  using TestEventListenerBase::TestEventListenerBase;
  bool assertionEnded(const Catch::AssertionStats& stats) override {
    failed = failed || !stats.assertionResult.isOk();
    return true;
  }
};
#endif
CATCH_REGISTER_LISTENER(Listener)

#if __has_include(<catch2/catch_all.hpp>)
std::string text_of(const Catch::Tag& tag) {
  return std::string(tag.original);
}
#else
const std::string& text_of(const std::string& tag) {
  return tag;
}
#endif

int write_cases(const std::string& path) {
  std::ofstream list(path);
  const auto program = std::filesystem::read_symlink("/proc/self/exe").string();
  const auto quoted = [](const std::string& text) {
    return " [==[" + text + "]==]";
  };
  const auto& registry = Catch::getRegistryHub().getTestCaseRegistry();
  const auto write = [&](const auto& test) {
    if (test.isHidden()) {
      return;
    }
    auto file = std::filesystem::path(test.lineInfo.file).stem().string();
    file.erase(file.rfind("_test"));
    std::string tags;
    for (const auto& tag : test.tags) {
      tags += text_of(tag) + ' ';
    }
    list << "ddp_case(" << quoted(program) << ' ' << file << quoted(tags)
         << quoted(test.name) << quoted(test_spec(test.name)) << ")\n";
  };
#if __has_include(<catch2/catch_all.hpp>)
  for (const auto* test : registry.getAllInfos()) {
    write(*test);
  }
#else
  for (const auto& test : registry.getAllTests()) {
    write(test);
  }
#endif
  list.close();
  return list ? EXIT_SUCCESS : EXIT_FAILURE;
}

} // namespace

bool has_failed() {
  return failed;
}

std::string test_spec(const std::string& name) {
  std::string result;
  for (const char c : name) {
    const bool option = result.empty() && (c == '-' || c == '~');
    if (option || c == ',' || c == '[' || c == '\\') {
      result += '\\';
    }
    result += c;
  }
  return result;
}

int run_cases(int argc, char** argv) {
  if (argc == 3 && argv[1] == std::string("--write-cases")) {
    return write_cases(argv[2]);
  }
  Catch::Session session;
#if !__has_include(<catch2/catch_all.hpp>)
  // Otherwise a filter that matches no test case passes.
  session.configData().warnings = Catch::WarnAbout::NoTests;
#endif
  const int code = session.run(argc, argv);
  if (code == EXIT_SUCCESS) {
    return has_skipped() ? kSkippedCode : EXIT_SUCCESS;
  }
  return code == kSkippedCode ? EXIT_FAILURE : code; // may count failures
}

} // namespace ddp::test
