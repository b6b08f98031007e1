// --help, the manual page and the completion scripts.
#include <tests/support/catch_plain.h>
#include <tests/support/skip.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <set>

#include <launcher/cli/help/text_layout.h>
#include <launcher/cli/options/option_table.h>
#include <tests/launcher/launched_job.h>
#include <tests/launcher/option_parsing.h>
#include <tests/support/temporary_folder.h>

namespace ddp::test::option_texts_test {

namespace {

bool has_program(const std::string& name) {
  return std::system(("command -v " + name + " >/dev/null").c_str()) == 0;
}

// A file with this text that goes with the object.
struct TextFile : TemporaryFolder {
  explicit TextFile(const std::string& text) {
    write_text(file, text);
  }
  const std::string file = *this / "file";
};

struct Outcome {
  std::string text; // standard output and error
  int status = -1;
};

Outcome run(const std::string& command) {
  Outcome outcome;
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  std::array<char, 4096> buffer;
  while (fgets(buffer.data(), buffer.size(), pipe) != nullptr) {
    outcome.text += buffer.data();
  }
  outcome.status = pclose(pipe);
  return outcome;
}

// What bash completes for the last of the words, which readline cuts at "=".
Texts completions(const std::string& words) {
  const TextFile script(parse({"--completion", "bash"}).answer);
  const Outcome outcome = run(
      "bash --norc -c 'compopt() { :; }; source \"$0\"; COMP_WORDS=(\"$@\"); "
      "COMP_CWORD=$(($# - 1)); _ddprun; "
      "printf \"%s\\n\" \"${COMPREPLY[@]}\"' " +
      script.file + " ddprun " + words);
  CHECK(outcome.status == 0);
  return lines_of(outcome.text);
}

} // namespace

TEST_CASE("every option is in every text", "[unit]") {
  const std::string help = parse({"--help"}).answer;
  const std::string man = parse({"--man"}).answer;
  const std::string bash = parse({"--completion", "bash"}).answer;
  const std::string zsh = parse({"--completion=zsh"}).answer;
  const std::string page = read_text(SOURCE_PATH "/docs/launching.md");
  std::set<std::string> names;
  for (const CommandOption& option : option_table()) {
    CHECK(std::string(option.help).back() == '.');
    for (const std::string& form : forms_of(option)) {
      CAPTURE(form);
      CHECK(names.insert(form).second);
      std::string in_man = "\\fB";
      for (const char letter : form) {
        in_man += letter == '-' ? "\\-" : std::string(1, letter);
      }
      CHECK(count_of(man, in_man + "\\fR") == 1);
      CHECK(
          count_of(page, "| `" + form) + count_of(page, ", " + form + " ") +
              count_of(page, ", " + form + "`") >=
          1);
      CHECK(
          count_of(help, "  " + form + " ") +
              count_of(help, ", " + form + " ") +
              count_of(help, "  " + form + ",") +
              count_of(help, "  " + form + "\n") ==
          1);
      CHECK(count_of(" " + bash, form) >= 1);
      int in_zsh = 0;
      for (const char* end : {"=", "[", "+"}) {
        in_zsh +=
            count_of(zsh, ")" + form + end) + count_of(zsh, "*" + form + end);
      }
      CHECK(in_zsh == 1);
    }
  }
  CHECK(names.size() > 45);
}

TEST_CASE("help fits the terminal", "[unit]") {
  for (const size_t columns : {60, 80, 120}) {
    const std::string help =
        parse({"--help"}, {{"COLUMNS", std::to_string(columns)}}).answer;
    size_t longest = 0;
    for (const std::string& line : lines_of(help)) {
      longest = std::max(longest, line.size());
    }
    CAPTURE(columns, longest);
    CHECK(longest <= columns);
    CHECK(longest + 12 > columns);
  }
  CHECK(
      parse({"--help"}, {{"COLUMNS", "wide"}}).answer ==
      parse({"--help"}).answer);
}

TEST_CASE("the manual page is good roff", "[unit]") {
  if (!has_program("groff")) {
    skip("groff is missing");
  }
  const TextFile page(parse({"--man"}).answer);
  const Outcome outcome = run("groff -man -ww -z " + page.file);
  CHECK(outcome.status == 0);
  CHECK(outcome.text.empty());
}

TEST_CASE("zsh's completion script says what it completes", "[unit]") {
  const std::string text = parse({"--completion", "zsh"}).answer;
  CHECK(text.rfind("#compdef ddprun\n", 0) == 0);
}

TEST_CASE("zsh takes its completion script", "[unit]") {
  if (!has_program("zsh")) {
    skip("zsh is missing");
  }
  const std::string text = parse({"--completion", "zsh"}).answer;
  const TextFile script(text);
  const Outcome outcome = run("zsh -n " + script.file);
  CHECK(outcome.status == 0);
  CHECK(outcome.text.empty());
}

TEST_CASE("bash completes options, their values and the program", "[unit]") {
  CHECK(completions("--nproc") == Texts{"--nproc-per-node"});
  CHECK(completions("--nproc_p") == Texts{"--nproc-per-node"});
  CHECK(completions("--output ''") == Texts{"lines", "raw", "pty"});
  CHECK(completions("--output = r") == Texts{"raw"});
  CHECK(completions("--output =") == Texts{"lines", "raw", "pty"});
  CHECK(completions("--tee 3 --bind_to s") == Texts{"socket", "share"});
  CHECK(completions("--tee = 3 -m --bind-to s") == Texts{"socket", "share"});
  CHECK(completions("./train --outp") == Texts{""});
  CHECK(completions("-- --outp") == Texts{""});
  const TextFile file("");
  const std::string path = file.file;
  const std::string beginning = path.substr(0, path.size() - 1);
  CHECK(completions("--report " + beginning).front() == path);
  CHECK(completions("--standalone " + beginning).front() == path);
  CHECK(completions("--standalone ./train " + beginning).front() == path);
}

} // namespace ddp::test::option_texts_test
