//! Turns the tables of commands, options and settings into a manual page.

use super::commands::{BOOT_CONFIG, COMMANDS, DEFAULT_CONFIG, OPTIONS, exit};
use super::help::{flag_form, option_form};
use crate::config::setting::Whose;
use crate::config::table::SETTINGS;

/// nodepulse(8) in the man macros of roff.
pub fn man() -> String {
    let mut page = format!(
        ".TH NODEPULSE 8 \"\" \"nodepulse {version}\" \"System Administration\"\n\
         .SH NAME\nnodepulse \\- makes a Linux board a live Kubernetes Node\n\
         .SH SYNOPSIS\n.B nodepulse\n[\\fICOMMAND\\fR] [\\fIOPTION\\fR]... [\\fISETTING\\fR]...\n\
         .SH DESCRIPTION\n\
         Probes the board, registers it as a Node with a Kubernetes API server, renews its Lease and keeps its status \
         true. It runs no pods and listens on no port.\n\
         .SH COMMANDS\n",
        version = roff(env!("CARGO_PKG_VERSION"))
    );
    for row in &COMMANDS {
        tagged(&mut page, format!("{} {}", row.name, row.argument).trim_end(), row.meaning);
    }
    page += ".SH OPTIONS\n";
    for row in &OPTIONS {
        tagged(&mut page, &option_form(row), row.meaning);
    }
    page += ".SH SETTINGS\n\
        Each is a key of the settings file and a flag; flags win over the file, the file over the defaults. Names, \
        defaults and meaning are the kubelet's, unless marked with *.\n";
    for setting in SETTINGS {
        let mark = if setting.whose == Whose::Ours { " *" } else { "" };
        let default =
            if setting.default.is_empty() { String::new() } else { format!(" Default: {}.", setting.default) };
        tagged(
            &mut page,
            &format!("{}  (key {}){mark}", flag_form(setting), setting.name),
            &format!("{}.{default}", setting.meaning),
        );
    }
    page += ".SH FILES\n";
    tagged(&mut page, DEFAULT_CONFIG, "Settings: YAML of kind NodePulseConfiguration, apiVersion nodepulse.dev/v1.");
    tagged(
        &mut page,
        BOOT_CONFIG,
        "The same, read where the first is absent; the kubeconfig beside it may be named so.",
    );
    page += ".SH SIGNALS\n";
    tagged(&mut page, "SIGTERM, SIGINT", "End. The Node stays and turns Unknown after its grace period.");
    tagged(&mut page, "SIGHUP", "Read settings and credentials again.");
    page += ".SH EXIT STATUS\n";
    for (code, meaning) in exit::ALL {
        tagged(&mut page, &code.to_string(), meaning);
    }
    page + ".SH SEE ALSO\n.BR kubectl (1),\n.BR systemd (1)\n"
}

fn tagged(page: &mut String, tag: &str, text: &str) {
    page.push_str(&format!(".TP\n.B {}\n{}\n", roff(tag), roff(text)));
}

/// Text that roff prints as it stands: dashes that can be copied, no requests, no escapes.
fn roff(text: &str) -> String {
    let escaped = text.replace('\\', "\\e").replace('-', "\\-").replace('"', "\\(dq").replace('`', "\\(ga");
    if escaped.starts_with(['.', '\'']) { format!("\\&{escaped}") } else { escaped }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_option_and_setting_is_in_the_manual() {
        let page = man();
        let names = COMMANDS.iter().map(|row| row.name.to_owned());
        let options = OPTIONS.iter().flat_map(|row| row.names).map(|name| (*name).to_owned());
        let settings = SETTINGS.iter().flat_map(|setting| [setting.name.to_owned(), setting.dashed_flag()]);
        for word in names.chain(options).chain(settings) {
            assert!(page.contains(&roff(&word)), "{word}");
        }
    }

    #[test]
    fn every_line_is_a_known_request_or_text() {
        const REQUESTS: [&str; 5] = [".TH ", ".SH ", ".TP", ".B ", ".BR "];
        for line in man().lines() {
            let request = line.starts_with(['.', '\'']);
            assert!(!request || REQUESTS.iter().any(|known| line.starts_with(known)), "{line}");
            assert!(!line.is_empty() && !line.contains('`'));
        }
        assert_eq!(roff(".so /etc/passwd \\n -x"), "\\&.so /etc/passwd \\en \\-x");
    }
}
