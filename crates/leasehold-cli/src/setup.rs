//! `leasehold setup-system` makes the folder of `system:`, and `setup-postgres` a schema.

use std::fs::{DirBuilder, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use leasehold::Locks;
use leasehold::stores::{File, Postgres};
use nix::libc;
use nix::unistd::{Gid, Group, Uid};

use crate::commands::Store;
use crate::exit::{Exit, print_error};

/// The mode of the folder. The owner and the members of the group have all rights. The setgid bit
/// gives new files the group. With the sticky bit, a member cannot remove the files of another
/// member.
const MODE: u32 = 0o3770;

const ROOT: u32 = 0;

pub(crate) async fn set_up(group: &str) -> Result<Exit> {
    if !Uid::effective().is_root() {
        print_error("setup-system must be run as root: sudo leasehold setup-system");
        return Ok(Exit::DENIED);
    }

    let folder = Path::new(File::SYSTEM_FOLDER);
    let gid = find_or_make_group(group)?;
    make_folder(folder, gid).with_context(|| format!("cannot set up {}", folder.display()))?;
    // A grant makes the other files that all users share. They then belong to root.
    let locks = Locks::from_store(File::at(folder)?, "system:")?;
    if let Ok(guard) = locks.mutex("setup-system").try_acquire().await? {
        guard.release().await?;
    }

    let folder = folder.display();
    writeln!(
        io::stdout(),
        "{folder} is ready: mode {MODE:o}, owner root, group {group}\n\
         Give a user access with: usermod -aG {group} USER"
    )?;
    Ok(Exit::DONE)
}

pub(crate) async fn set_up_postgres(store: &Store, roles: &[String], print: bool) -> Result<Exit> {
    let builder = Postgres::builder(&store.url)?;
    if print {
        let statements = builder.setup_sql(roles.iter().map(String::as_str));
        io::stdout().write_all(statements.as_bytes())?;
        return Ok(Exit::DONE);
    }
    let url = builder.url();
    builder.set_up(roles).await?;
    writeln!(io::stdout(), "{url} is ready")?;
    Ok(Exit::DONE)
}

fn find_or_make_group(name: &str) -> Result<Gid> {
    if let Some(group) = Group::from_name(name)? {
        return Ok(group.gid);
    }

    let add = |program: &str| {
        Command::new(program)
            .args(["--system", "--", name])
            .status()
    };
    // The PATH of cron and su has no folder for root's programs.
    let added = add("groupadd").or_else(|_| add("/usr/sbin/groupadd"));
    if !added.context("cannot run /usr/sbin/groupadd")?.success() {
        bail!("cannot create the group {name}: groupadd failed");
    }
    let group = Group::from_name(name)?;
    Ok(group
        .with_context(|| format!("the group {name} is missing"))?
        .gid)
}

/// Makes the folder, or gives an existing one its owner and mode again.
fn make_folder(folder: &Path, group: Gid) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        made => made?,
    }
    // The owner and the mode are set on the folder that was opened, never through a link.
    let folder = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW)
        .open(folder)?;
    fchown(&folder, Some(ROOT), Some(group.as_raw()))?;
    folder.set_permissions(Permissions::from_mode(MODE))
}
