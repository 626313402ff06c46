//! `attache keys`: who may call.

use std::io::{self, Write};
use std::path::Path;

use anyhow::{Context, bail};
use attache::auth::{ApiKey, KeyFile};

use crate::access;
use crate::args::{KeysAddArgs, KeysArgs, KeysCommand};
use crate::data_dir;

const DAY_MS: i64 = 24 * 3600 * 1000;

pub(crate) fn run(args: KeysArgs) -> anyhow::Result<()> {
    let named = args.folder.data_dir.as_deref();
    let folder = match args.verb {
        KeysCommand::Add(_) => data_dir::create(named, "attache")?,
        // A folder with a name that was mistyped is not there, and stays so.
        KeysCommand::List | KeysCommand::Revoke { .. } => data_dir::require(named, "attache")?,
    };
    let (file, admin) = (access::key_file(&folder), access::admin_key_file(&folder));
    match args.verb {
        KeysCommand::Add(add) => {
            self::add(if add.admin { &admin } else { &file }, add)?;
            access::notify_server(&folder)
        }
        KeysCommand::List => {
            let listed = list(&file, "")? + list(&admin, "  admin")?;
            if listed == 0 {
                eprintln!("There are no keys in {}.", folder.display());
            }
            Ok(())
        }
        KeysCommand::Revoke { key } => {
            revoke([&file, &admin], &key, named)?;
            access::notify_server(&folder)
        }
    }
}

fn add(file: &KeyFile, add: KeysAddArgs) -> anyhow::Result<()> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.@".contains(c);
    if add.name.is_empty() || add.name.len() > 64 || !add.name.chars().all(is_plain) {
        bail!("a name has 1 to 64 letters, digits, '-', '_', '.' and '@'");
    }
    let (secret, mut key) = ApiKey::generate(&add.name);
    key.scopes = add.scopes;
    key.tenants = add.tenants;
    key.agents = (!add.agents.is_empty()).then_some(add.agents);
    key.expires_ms = add
        .days
        .map(|days| key.created_ms + i64::from(days) * DAY_MS);
    let id = key.id.clone();
    file.update(|keys| keys.push(key))
        .with_context(|| cannot(file))?;
    // The key alone on stdout, so that a script can take it.
    writeln!(io::stdout(), "{}", secret.expose())?;
    eprintln!(
        "Key {id} of {}. It is shown this once; callers send it as `Authorization: Bearer <KEY>`.",
        add.name
    );
    Ok(())
}

/// Gives how many there are.
fn list(file: &KeyFile, about: &str) -> anyhow::Result<usize> {
    let keys = file.read().with_context(|| cannot(file))?;
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

fn revoke(files: [&KeyFile; 2], key: &str, named: Option<&Path>) -> anyhow::Result<()> {
    let mut revoked = 0;
    // A file that is not there stays so: it would say that callers are asked for keys.
    for file in files.into_iter().filter(|file| file.path().exists()) {
        let taken = file.update(|keys| {
            let before = keys.len();
            keys.retain(|own| own.id != key && own.name != key);
            before - keys.len()
        });
        revoked += taken.with_context(|| cannot(file))?;
    }
    match revoked {
        0 => {
            let named = named.map(Path::to_string_lossy);
            let named = named.map_or_else(String::new, |it| {
                format!(" --data-dir {}", shell_words::quote(&it))
            });
            bail!("there is no key `{key}`; `attache keys list{named}` has them all")
        }
        1 => eprintln!("Revoked 1 key."),
        many => eprintln!("Revoked {many} keys."),
    }
    Ok(())
}

fn cannot(file: &KeyFile) -> String {
    format!("{}", file.path().display())
}
