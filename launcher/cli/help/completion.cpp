#include <launcher/cli/help/answers.h>

#include <launcher/cli/help/text_layout.h>
#include <launcher/cli/options/option_table.h>
#include <launcher/cli/options/option_values.h>

namespace ddp {
namespace {

// `--tee|-t` as a pattern of `case`.
std::string pattern_of(const CommandOption& option) {
  std::string pattern;
  for (const std::string& form : forms_of(option)) {
    pattern += (pattern.empty() ? "" : "|") + form;
  }
  return pattern;
}

std::string bash_reply(const CommandOption& option) {
  const std::string choices = option.choices;
  if (choices == "FILE") {
    return "compopt -o filenames; COMPREPLY=($(compgen -f -- \"$word\"))";
  }
  if (choices == "FOLDER") {
    return "compopt -o filenames; COMPREPLY=($(compgen -d -- \"$word\"))";
  }
  return choices.empty()
      ? "COMPREPLY=()"
      : "COMPREPLY=($(compgen -W '" + choices + "' -- \"$word\"))";
}

const char* const kBashEnd = R"(
_ddprun() {
  local word=${COMP_WORDS[COMP_CWORD]} option='' ended='' i=1
  COMPREPLY=()
  while ((i < COMP_CWORD)); do
    case ${COMP_WORDS[i]} in
      --) ended=1; ((++i)); break ;;
      -*) ;;
      *) break ;;
    esac
    if [[ ${COMP_WORDS[i + 1]} == '=' ]]; then
      ((i + 1 < COMP_CWORD - 1)) || option=${COMP_WORDS[i]}
      ((i += 3))
    elif _ddprun_takes_value "${COMP_WORDS[i]}"; then
      ((i + 1 < COMP_CWORD)) || option=${COMP_WORDS[i]}
      ((i += 2))
    else
      ((++i))
    fi
  done
  if [[ $option ]]; then
    [[ $word != '=' ]] || word=''
    _ddprun_values "${option//_/-}"
  elif ((i < COMP_CWORD)) && declare -F _command_offset >/dev/null; then
    _command_offset "$i"
  elif ((i == COMP_CWORD)) && [[ ! $ended && $word == -* ]]; then
    _ddprun_options
  else
    compopt -o filenames 2>/dev/null
    COMPREPLY=($(compgen -f -- "$word"))
    ((i < COMP_CWORD)) || [[ -z $word || $word == */* ]] ||
      COMPREPLY+=($(compgen -c -- "$word"))
  fi
}
complete -F _ddprun ddprun
)";

std::string bash_script() {
  std::string all;
  std::string with_value;
  std::string cases;
  for (const CommandOption& option : option_table()) {
    for (const std::string& form : forms_of(option)) {
      all += (all.empty() ? "" : " ") + form;
    }
    if (option.value != nullptr) {
      with_value += (with_value.empty() ? "" : "|") + pattern_of(option);
      cases +=
          "    " + pattern_of(option) + ") " + bash_reply(option) + " ;;\n";
    }
  }
  return "# bash completion for ddprun\n"
         "_ddprun_takes_value() {\n  case ${1//_/-} in\n    " +
      with_value + ") ;;\n    *) return 1 ;;\n  esac\n}\n\n" +
      "_ddprun_options() {\n  COMPREPLY=($(compgen -W '" + all +
      "' -- \"${word//_/-}\"))\n}\n\n" + "_ddprun_values() {\n  case $1 in\n" +
      cases + "  esac\n}\n" + kBashEnd;
}

// Text inside of [...] of a specification, which is in single quotes.
std::string zsh_text(const std::string& text) {
  std::string result;
  for (const char letter : text) {
    if (letter == '\'') {
      result += "'\\''";
    } else if (std::string("[]:\\").find(letter) != std::string::npos) {
      result += std::string("\\") + letter;
    } else {
      result += letter;
    }
  }
  return result;
}

std::string first_sentence(const std::string& text) {
  return text.substr(0, text.find(". "));
}

std::string zsh_action(const CommandOption& option) {
  if (option.value == nullptr) {
    return "";
  }
  const std::string choices = option.choices;
  std::string action = " ";
  if (choices == "FILE") {
    action = "_files";
  } else if (choices == "FOLDER") {
    action = "_files -/";
  } else if (!choices.empty()) {
    action = "(" + choices + ")";
  }
  return ":" + zsh_text(option.value) + ":" + action;
}

std::string zsh_line(const CommandOption& option) {
  std::string exclusive;
  std::string lines;
  for (const std::string& form : forms_of(option)) {
    exclusive += (exclusive.empty() ? "" : " ") + form;
  }
  const bool repeated = std::string(option.name) == "env";
  for (const std::string& form : forms_of(option)) {
    const std::string sign = option.value == nullptr ? ""
        : form[1] == '-'                             ? "="
                                                     : "+";
    lines += "  '" + (repeated ? "*" : "(" + exclusive + ")") + form + sign +
        "[" + zsh_text(first_sentence(option.help)) + "]" + zsh_action(option) +
        "' \\\n";
  }
  return lines;
}

std::string zsh_script() {
  std::string script = "#compdef ddprun\n_arguments -s \\\n";
  for (const CommandOption& option : option_table()) {
    script += zsh_line(option);
  }
  return script +
      "  '(-)1:program:{_alternative \"commands:command:_command_names -e\" "
      "\"files:file:_files\"}' \\\n"
      "  '*::arguments:_normal'\n";
}

} // namespace

std::string completion_script(const OptionValue& shell) {
  if (shell.text == "bash") {
    return bash_script();
  }
  if (shell.text != "zsh") {
    refuse_value(shell, "bash or zsh");
  }
  return zsh_script();
}

} // namespace ddp
