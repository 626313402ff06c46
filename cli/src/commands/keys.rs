//! `attache keys`: API keys of callers and operators.

use std::io::{self, Write};
use std::path::Path;

use anyhow::{Context, bail};
use attache::auth::{ApiKey, KeyFile, OperatorRole};
use serde_json::json;

use crate::access;
use crate::args::{KeysAddArgs, KeysArgs, KeysCommand};
use crate::data_dir;
use crate::output::Output;

const DAY_MS: i64 = 24 * 3600 * 1000;

pub(crate) fn run(args: KeysArgs, out: &mut Output) -> anyhow::Result<()> {
    let named = args.folder.data_dir.as_deref();
    let folder = match args.verb {
        KeysCommand::Add(_) => data_dir::create(named, "attache")?,
        // A mistyped directory is an error, and is not created.
        KeysCommand::List | KeysCommand::Revoke { .. } => data_dir::require(named, "attache")?,
    };
    let file = access::key_file(&folder);
    let admin = access::admin_key_file(&folder);
    match args.verb {
        KeysCommand::Add(add) => {
            self::add(if add.admin { &admin } else { &file }, add, out)?;
            access::notify_server(&folder)
        }
        KeysCommand::List => {
            if out.is_json() {
                return list_json(&file, &admin, out);
            }
            let listed = list(&file, "")? + list(&admin, "  admin")?;
            if listed == 0 {
                eprintln!("There are no keys in {}.", folder.display());
            }
            Ok(())
        }
        KeysCommand::Revoke { key } => {
            revoke([&file, &admin], &key, named, out)?;
            access::notify_server(&folder)
        }
    }
}

fn add(file: &KeyFile, add: KeysAddArgs, out: &mut Output) -> anyhow::Result<()> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.@".contains(c);
    if add.name.is_empty() || add.name.len() > 64 || !add.name.chars().all(is_plain) {
        bail!("invalid name: 1 to 64 letters, digits, '-', '_', '.' and '@' are allowed");
    }
    let (secret, mut key) = ApiKey::generate(&add.name);
    key.scopes = add.scopes;
    key.tenants = add.tenants;
    key.role = add.role;
    key.agents = (!add.agents.is_empty()).then_some(add.agents);
    key.expires_ms = add
        .days
        .map(|days| key.created_ms + i64::from(days) * DAY_MS);
    let id = key.id.clone();
    file.update(|keys| keys.push(key))
        .with_context(|| path_of(file))?;
    if out.is_json() {
        out.print_json(&json!({"schema": "attache.keys/1", "id": id, "name": add.name, "key": secret.expose()}))?;
        return Ok(());
    }
    // Only the key on stdout, for scripts.
    writeln!(io::stdout(), "{}", secret.expose())?;
    eprintln!(
        "Key {id} of {}. It is printed only once; callers send it as `Authorization: Bearer <KEY>`.",
        add.name
    );
    Ok(())
}

/// Prints the keys of a file, and returns their number.
fn list(file: &KeyFile, about: &str) -> anyhow::Result<usize> {
    let keys = file.read().with_context(|| path_of(file))?;
    let mut out = io::stdout().lock();
    for key in &keys {
        write!(
            out,
            "{}  {}{about}  since {}",
            key.id,
            key.name,
            key.created()
        )?;
        match key.expires() {
            Some(end) if key.is_expired() => write!(out, "  ended {end}")?,
            Some(end) => write!(out, "  until {end}")?,
            None => {}
        }
        if let Some(role) = key.role {
            write!(out, "  role {role}")?;
        }
        for (about, list) in [
            ("scopes", Some(&key.scopes)),
            ("agents", key.agents.as_ref()),
            ("tenants", Some(&key.tenants)),
        ] {
            if let Some(list) = list.filter(|list| !list.is_empty()) {
                write!(out, "  {about} {}", list.join(","))?;
            }
        }
        writeln!(out)?;
    }
    Ok(keys.len())
}

/// Prints the keys of both files as one document.
fn list_json(callers: &KeyFile, operators: &KeyFile, out: &mut Output) -> anyhow::Result<()> {
    let mut keys = Vec::new();
    for (file, is_admin) in [(callers, false), (operators, true)] {
        for key in file.read().with_context(|| path_of(file))? {
            keys.push(json!({
                "id": key.id, "name": key.name, "admin": is_admin, "created": key.created().to_string(),
                "expires": key.expires().map(|time| time.to_string()), "expired": key.is_expired(),
                "role": is_admin.then(|| key.role.unwrap_or(OperatorRole::Admin).name()),
                "scopes": key.scopes, "agents": key.agents, "tenants": key.tenants,
            }));
        }
    }
    out.print_json(&json!({"schema": "attache.keys/1", "keys": keys}))?;
    Ok(())
}

fn revoke(
    files: [&KeyFile; 2],
    key: &str,
    named: Option<&Path>,
    out: &mut Output,
) -> anyhow::Result<()> {
    let mut revoked = 0;
    // A missing key file is not created: its existence makes the server require credentials.
    for file in files.into_iter().filter(|file| file.path().exists()) {
        let removed = file.update(|keys| {
            let before = keys.len();
            keys.retain(|own| own.id != key && own.name != key);
            before - keys.len()
        });
        revoked += removed.with_context(|| path_of(file))?;
    }
    match revoked {
        0 => {
            let named = named.map(Path::to_string_lossy);
            let named = named.map_or_else(String::new, |it| {
                format!(" --data-dir {}", shell_words::quote(&it))
            });
            bail!("there is no key `{key}`; list them with `attache keys list{named}`")
        }
        _ if out.is_json() => {
            out.print_json(&json!({"schema": "attache.keys/1", "revoked": revoked}))?;
        }
        1 => eprintln!("Revoked 1 key."),
        many => eprintln!("Revoked {many} keys."),
    }
    Ok(())
}

fn path_of(file: &KeyFile) -> String {
    format!("{}", file.path().display())
}
