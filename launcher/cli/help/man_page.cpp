#include <launcher/cli/help/answers.h>

#include <launcher/cli/help/text_layout.h>
#include <launcher/cli/options/environment_options.h>
#include <launcher/cli/options/option_table.h>

namespace ddp {
namespace {

// Text that roff shows as it is.
std::string roff(const std::string& text) {
  std::string result;
  for (const char letter : text) {
    if (letter == '\\') {
      result += "\\e";
    } else if (letter == '-') {
      result += "\\-";
    } else {
      result += letter;
    }
  }
  const bool is_request =
      !result.empty() && (result[0] == '.' || result[0] == '\'');
  return is_request ? "\\&" + result : result;
}

std::string paragraph(const std::string& text) {
  std::string result;
  for (const std::string& line : wrap(text, 76)) {
    result += roff(line) + "\n";
  }
  return result;
}

std::string entry(const CommandOption& option) {
  std::string forms;
  for (const std::string& form : forms_of(option)) {
    forms += (forms.empty() ? "" : ", ") + ("\\fB" + roff(form) + "\\fR");
  }
  if (option.value != nullptr) {
    forms += " \\fI" + roff(option.value) + "\\fR";
  }
  std::string help = option.help;
  if (option.from_environment) {
    help += " Also from " + variable_name(option.name) + ".";
  }
  return ".TP\n" + forms + "\n" + paragraph(help);
}

std::string options_section() {
  std::string text = ".SH OPTIONS\n" +
      paragraph("Underscores stand for dashes, and a beginning that is unique "
                "for the whole name. Variables give what the command line "
                "does not; a flag's is 1 or 0.");
  const CommandOption* previous = nullptr;
  for (const CommandOption& option : option_table()) {
    if (previous == nullptr || previous->group != option.group) {
      text += std::string(".SS \"") + heading_of(option.group) + "\"\n";
    }
    text += entry(option);
    previous = &option;
  }
  return text;
}

std::string items(
    std::initializer_list<std::pair<const char*, const char*>> list) {
  std::string text;
  for (const auto& [name, meaning] : list) {
    text += ".TP\n\\fB" + roff(name) + "\\fR\n" + paragraph(meaning);
  }
  return text;
}

std::string closing_sections() {
  return ".SH \"EXIT STATUS\"\n" +
      items(
             {{"0", "Every rank exited with 0."},
              {"1 to 255", "That of the first rank that failed."},
              {"2", "Wrong usage."},
              {"75", "The store died, or too many nodes: worth another try."},
              {"124", "A hang or start timeout has passed."},
              {"125", "ddprun failed itself."},
              {"126, 127", "The program cannot be executed, is not there."},
              {"128 + N",
               "The first rank that failed was killed by signal N, or the job "
               "was ended by it."}}) +
      ".SH ENVIRONMENT\n" +
      items(
             {{"PYTHON_EXEC", "Python for scripts and modules."},
              {"DDP_TOKEN", "The job's secret, where there is no --token."},
              {"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE",
               "Default of --log-line-prefix."},
              {"CUDA_VISIBLE_DEVICES", "GPUs that are counted."}}) +
      ".SH EXAMPLES\n.EX\n" +
      roff("ddprun --nproc-per-node 4 ./train --epochs 3") + "\n" +
      roff("ddprun --nproc-per-node gpu --max-restarts 3 ./train") + "\n" +
      roff("ddprun --nproc-per-node 2 --tee 3 --log-dir logs train.py") + "\n" +
      roff("ddprun --nnodes 2:4 --rdzv-endpoint node0:29400 ./train") +
      "\n.EE\n.SH \"SEE ALSO\"\n.BR mpirun (1),\n.BR srun (1)\n";
}

} // namespace

std::string man_page() {
  return ".TH DDPRUN 1 \"\" \"ddprun " DDP_VERSION
         "\" \"User Commands\"\n"
         ".SH NAME\nddprun \\- run a program as several ranks\n"
         ".SH SYNOPSIS\n.B ddprun\n[\\fIOPTIONS\\fR] [\\-\\-] "
         "\\fIPROGRAM\\fR [\\fIARGUMENTS\\fR...]\n"
         ".SH DESCRIPTION\n" +
      paragraph(
             "ddprun starts a program several times on this machine, tells "
             "each of these ranks its number and where they meet, and ends "
             "them together when one fails. A job of several machines has a "
             "ddprun on each. Options are torchrun's and a "
             "few more; they end at the program. ${local_rank} in the "
             "program's arguments is replaced by the rank's number on "
             "this node.") +
      options_section() + closing_sections();
}

} // namespace ddp
