//! The words of `openftl completions` name a shell.

use clap::{Args, ValueEnum};

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  openftl completions bash > ~/.local/share/bash-completion/completions/openftl
  openftl completions zsh > ~/.local/share/zsh/site-functions/_openftl     a folder that is in $fpath
  openftl completions fish > ~/.config/fish/completions/openftl.fish
  source <(openftl completions bash)                                       in this shell only";

#[derive(Args, Debug)]
#[command(after_help = COMPLETIONS_EXAMPLES)]
pub struct Completions {
    /// The shell.
    #[arg(value_enum, value_name = "SHELL")]
    pub shell: ShellName,
}

/// A shell that has completions.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum ShellName {
    /// Bash, with the package bash-completion.
    Bash,
    /// Zsh.
    Zsh,
    /// Fish.
    Fish,
}
