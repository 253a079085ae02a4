//! What is read from where, and what is told of files that are missing, wrong or open to everybody.

use super::*;

fn of_kubeconfig(path: &str) -> String {
    let settings = Settings { kubeconfig: Some(path.to_owned()), ..Settings::default() };
    kubeconfig(&settings).unwrap_err().to_string()
}

#[test]
fn a_kubeconfig_that_is_a_directory_says_so() {
    assert!(of_kubeconfig("/proc").starts_with("the kubeconfig /proc is a directory"));
}

#[test]
fn a_kubeconfig_that_is_a_device_says_so() {
    assert!(of_kubeconfig("/dev/zero").starts_with("the kubeconfig /dev/zero is a device: name a file"));
}

#[test]
fn a_board_without_a_name_makes_up_none_while_its_certificate_cannot_be_read() {
    let text = "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c, user: u}}]\n\
                clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]\n\
                users: [{name: u, user: {client-certificate: /nonexistent/node.crt, client-key: node.key}}]\n";
    let kubeconfig = Kubeconfig::parse(text, "/nonexistent/kubeconfig").unwrap();
    let mut machine = node::tests::samples::facts().machine;
    let named = Settings { hostname_override: Some("gate-7".to_owned()), ..Settings::default() };
    machine.hostname = Ok("gate-8".to_owned());
    assert_eq!(node_name(&Settings::default(), &machine, &kubeconfig).unwrap().name, "gate-8");
    machine.hostname = node::tests::samples::absent();
    assert_eq!(node_name(&named, &machine, &kubeconfig).unwrap().name, "gate-7");
    let error = node_name(&Settings::default(), &machine, &kubeconfig).unwrap_err();
    assert!(error.to_string().contains("/nonexistent/node.crt"), "{error}");
}

#[test]
fn what_a_cluster_needs_is_found_where_it_was_installed_else_in_the_source() {
    let prefix = std::env::temp_dir().join(format!("nodepulse-installed-{}", std::process::id()));
    let program = prefix.join("bin/nodepulse");
    assert_eq!(kubernetes_folder(&program), "targets/kubernetes");
    assert_eq!(kubernetes_folder(Path::new("")), "targets/kubernetes");
    let folder = prefix.join("share/nodepulse/kubernetes");
    std::fs::create_dir_all(&folder).unwrap();
    assert_eq!(kubernetes_folder(&program), folder.display().to_string());
    std::fs::remove_dir_all(prefix).unwrap();
}

#[test]
fn settings_on_the_boot_partition_are_read_where_there_are_no_others() {
    let folder = std::env::temp_dir().join(format!("nodepulse-boot-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let [etc, firmware, boot] = ["etc", "firmware", "boot"].map(|name| folder.join(name).display().to_string());
    let found = || first_there(&etc, [&firmware, &boot]).map(|path| path.rsplit('/').next().unwrap().to_owned());
    assert_eq!(found(), None);
    for (path, name) in [(&boot, "boot"), (&firmware, "firmware"), (&etc, "etc")] {
        std::fs::write(path, "").unwrap();
        assert_eq!(found().as_deref(), Some(name));
    }
    std::fs::remove_dir_all(folder).unwrap();
    assert_eq!((DEFAULT_CONFIG, BOOT_CONFIGS[0]), ("/etc/nodepulse/config.yaml", "/boot/firmware/nodepulse.yaml"));
}

#[test]
fn a_token_of_a_file_needs_what_one_of_the_settings_needs() {
    let folder = std::env::temp_dir().join(format!("nodepulse-token-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("token").display().to_string();
    let read = |text: &str, ca_file: Option<&str>| {
        std::fs::write(&path, text).unwrap();
        let [token_file, ca_file] = [Some(path.as_str()), ca_file].map(|path| path.map(str::to_owned));
        token(&Settings { token_file, ca_file, ..Settings::default() })
    };
    let of_kubeadm = " abcdef.0123456789abcdef\n";
    assert_eq!(read(of_kubeadm, Some("/ca")).unwrap().unwrap().as_str(), of_kubeadm.trim());
    let untrusted = read(of_kubeadm, None).unwrap_err().to_string();
    assert!(untrusted.starts_with(&format!("the token in {path}: nothing says")), "{untrusted}");
    for wrong in ["", "abcdef.0123456789abcdef\nabcdef.0123456789abcdef", "hunter2"] {
        let told = read(wrong, Some("/ca")).unwrap_err();
        assert!(
            told.code == exit::CONFIG && !told.to_string().contains("012345") && !told.to_string().contains("hunter")
        );
    }
    std::fs::remove_dir_all(folder).unwrap();
    assert!(read_missing(&path).contains("is not there: put it there, or name another with --token-file"));
    assert_eq!(token(&Settings::default()), Ok(None));
}

fn read_missing(path: &str) -> String {
    token(&Settings { token_file: Some(path.to_owned()), ..Settings::default() }).unwrap_err().to_string()
}

#[test]
fn a_token_from_standard_input_is_its_first_line_and_stands_for_the_flag() {
    let sources = |value: &str| Sources {
        config: None,
        flags: vec![("token-file".to_owned(), value.to_owned()), ("zone".to_owned(), "a".to_owned())],
    };
    let read = |value: &str, input: &str| {
        let mut sources = sources(value);
        read_token(&mut sources, input.as_bytes()).map(|()| sources)
    };
    let typed = read("-", " abcdef.0123456789abcdef \nmore\n").unwrap();
    let flags: Vec<(&str, &str)> = typed.flags.iter().map(|(flag, value)| (&**flag, &**value)).collect();
    assert_eq!(flags, [("zone", "a"), ("token", "abcdef.0123456789abcdef")]);
    assert!(!format!("{typed:?} {typed:#?}").contains("0123456789"), "{typed:?}");
    assert_eq!(read("/t", "x").unwrap(), sources("/t"));
    for nothing in ["", "\n", "  \nabcdef.0123456789abcdef"] {
        assert_eq!(read("-", nothing).unwrap_err().code, exit::USAGE, "{nothing:?}");
    }
}

#[test]
fn a_settings_file_that_was_named_must_exist() {
    let sources = Sources { config: Some("/nonexistent/config.yaml".to_owned()), flags: Vec::new() };
    let error = super::settings(&sources).unwrap_err();
    assert_eq!(error.code, crate::cli::commands::exit::CONFIG);
    assert!(error.to_string().starts_with("the settings file /nonexistent/config.yaml is not there"), "{error}");
}

#[test]
fn what_everybody_may_read_or_change_is_named_with_its_remedy() {
    let folder = std::env::temp_dir().join(format!("nodepulse-open-{}", std::process::id()));
    let state = folder.join("state").display().to_string();
    std::fs::create_dir_all(&state).unwrap();
    let make = |name: &str| {
        let path = folder.join(name).display().to_string();
        std::fs::write(&path, "secret").unwrap();
        path
    };
    let [kubeconfig, token, settings_file] = ["kubeconfig", "token", "config.yaml"].map(make);
    let mode = |path: &str, mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    let user = |user: &str| {
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n\
             clusters: [{{name: c, cluster: {{server: 'https://127.0.0.1:1'}}}}]\nusers: [{{name: u, user: {user}}}]\n"
        );
        Kubeconfig::parse(&text, "/nonexistent/kubeconfig").unwrap()
    };
    let settings =
        Settings { kubeconfig: Some(kubeconfig.clone()), state_directory: state.clone(), ..Settings::default() };
    let sources = Sources { config: Some(settings_file.clone()), flags: Vec::new() };
    let all = [&kubeconfig, &token, &settings_file, &state];
    let (by_file, by_text) = (user(&format!("{{tokenFile: {token}}}")), user("{token: secret}"));
    let told = |kubeconfig| {
        let told = too_open_files(&sources, &settings, Some(kubeconfig))().into_iter();
        told.map(|(word, text)| (word, text.split(' ').next().unwrap().to_owned())).collect::<Vec<_>>()
    };
    all.iter().for_each(|path| mode(path, 0o700));
    assert_eq!(told(&by_file), []);
    mode(&token, 0o744);
    assert_eq!(told(&by_file), [("open-secret", token.clone())]);
    assert_eq!(told(&by_text), []);
    mode(&kubeconfig, 0o704);
    assert_eq!(told(&by_text), [("open-secret", kubeconfig.clone())]);
    all.iter().for_each(|path| mode(path, 0o770));
    assert_eq!(told(&by_file), [], "a group is somebody's choice");
    for path in all {
        mode(path, 0o772);
        assert_eq!(told(&by_file), [("open-to-change", path.clone())]);
        mode(path, 0o770);
    }
    std::fs::remove_dir_all(folder).unwrap();
    assert_eq!(told(&user("{}")), []);
}

#[test]
fn a_token_that_everybody_may_read_is_named_where_it_lies() {
    let folder = std::env::temp_dir().join(format!("nodepulse-open-token-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let [config, token_file] = ["config.yaml", "token"].map(|name| {
        let path = folder.join(name).display().to_string();
        std::fs::write(&path, "").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        path
    });
    let state_directory = folder.display().to_string();
    let told = |flags: &[&str], settings: Settings| {
        let flags = flags.iter().map(|flag| ((*flag).to_owned(), "x".to_owned())).collect();
        let sources = Sources { config: Some(config.clone()), flags };
        let settings = Settings { state_directory: state_directory.clone(), ..settings };
        let told = too_open_files(&sources, &settings, None)();
        told.into_iter().map(|(word, text)| (word, text.split(' ').next().unwrap().to_owned())).collect::<Vec<_>>()
    };
    let with_token = || Settings { token: Token::parse("abcdef.0123456789abcdef").ok(), ..Settings::default() };
    assert_eq!(told(&[], with_token()), [("open-secret", config.clone())]);
    assert_eq!(told(&["token"], with_token()), [], "it was typed");
    assert_eq!(told(&[], Settings::default()), []);
    let of_file = Settings { token_file: Some(token_file.clone()), ..Settings::default() };
    assert_eq!(told(&[], of_file), [("open-secret", token_file.clone())]);
    let of_kubeconfig = Settings { bootstrap_kubeconfig: Some(token_file.clone()), ..Settings::default() };
    assert_eq!(told(&[], of_kubeconfig), [("open-secret", token_file)]);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_file_that_may_not_be_looked_for_counts_as_there() {
    assert!(is_there("/proc") && !is_there("/proc/nothing"));
    assert!(is_there(&format!("/proc/{}", "x".repeat(5000))), "the kernel refuses to say");
}
