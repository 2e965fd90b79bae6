//! The rights that a user needs on nodes, and which node an error names.

use leasehold::{Entry, Error, Locks, Name};
use zookeeper_client::{Acl, Acls, AuthId, Client, CreateMode, Permission};

use crate::{SERVER, is_free, open, within_timeout};

/// The user `team` with the password `pw`, as a server names it in an ACL.
const TEAM: &str = "team:shzD+8mpsnqt5eJ2+pNI6z4v2Jg=";

/// Connects a client that may do everything with the nodes of [`make`].
async fn administrator() -> Client {
    let connector = Client::connector().with_auth("digest", b"root:secret");
    let connected = connector.connect(&SERVER.address()).await;
    connected.expect("it connects")
}

/// Creates a node on which `team` has only these rights.
async fn make(client: &Client, path: &str, rights: Permission) {
    let created = CreateMode::Persistent.with_acls(Acls::creator_all());
    client.create(path, b"", &created).await.expect("created");
    let root = client.get_acl(path).await.expect("read").0.remove(0);
    let team = Acl::new(rights, AuthId::new("digest", TEAM));
    let set = client.set_acl(path, &[root, team], None).await;
    set.expect("set");
}

async fn open_as_team(folder: &str) -> Locks {
    open(&format!("zookeeper://team:pw@{}{folder}", SERVER.address())).await
}

async fn refused(locks: &Locks, name: &str) -> Error {
    let refused = locks.mutex(name).try_acquire().await;
    let error = refused.expect_err("the right is missing");
    assert!(error.is_denied(), "{error}");
    error
}

#[track_caller]
fn assert_names(error: &Error, right: &str, node: &str) {
    let named = format!("lacks the right to {right} on the node {node} ");
    let text = format!("{error} ");
    assert!(
        text.replace([';', ':', ','], " ").contains(&named),
        "{error}"
    );
}

/// All rights of a parent are tried with all rights of the folder.
///
/// Shows G-29.
#[tokio::test]
async fn new_lock_needs_the_right_to_create_in_its_folder_only() {
    let client = administrator().await;
    for parent_bits in 0..8 {
        let parent = format!("/team-{parent_bits}");
        make(&client, &parent, rights(parent_bits)).await;
        for bits in 0..8 {
            let folder = format!("{parent}/locks-{bits}");
            make(&client, &folder, rights(bits)).await;
            let locks = open_as_team(&folder).await;
            if rights(bits).has(Permission::CREATE) {
                assert!(is_free(&locks, "new").await, "{folder}");
            } else {
                assert_names(&refused(&locks, "new").await, "create", &folder);
            }
        }
    }
}

/// Returns one of the sets of rights to read, to create and to delete.
fn rights(bits: u32) -> Permission {
    let all = [Permission::READ, Permission::CREATE, Permission::DELETE];
    let chosen = all.into_iter().enumerate();
    chosen
        .filter(|(at, _)| bits & (1 << at) != 0)
        .fold(Permission::NONE, |rights, (_, right)| rights | right)
}

#[tokio::test]
async fn missing_folders_are_created_below_the_last_that_exists() {
    let client = administrator().await;
    make(&client, "/deep", Permission::READ).await;
    make(&client, "/deep/own", Permission::CREATE).await;
    let locks = open_as_team("/deep/own/a/b").await;
    assert!(is_free(&locks, "new").await);

    let locks = open_as_team("/deep/other/a").await;
    assert_names(&refused(&locks, "new").await, "create", "/deep");
}

/// Shows G-28.
#[tokio::test]
async fn error_names_the_node_of_the_lock_and_the_right() {
    let client = administrator().await;
    make(&client, "/given", Permission::NONE).await;
    for (name, right) in [("read-only", "create"), ("write-only", "read")] {
        let node = format!("/given/{name}");
        let given = if right == "create" {
            Permission::READ
        } else {
            Permission::CREATE
        };
        make(&client, &node, given).await;
        let locks = open_as_team("/given").await;
        assert_names(&refused(&locks, name).await, right, &node);
    }

    // An existing node needs no right on its folder.
    make(&client, "/given/whole", Permission::ALL).await;
    assert!(is_free(&open_as_team("/given").await, "whole").await);
}

#[tokio::test]
async fn user_with_the_right_to_read_lists_inspects_and_observes() {
    let client = administrator().await;
    make(&client, "/read", Permission::READ).await;
    make(&client, "/read/a", Permission::READ).await;
    let owner = open(&format!(
        "zookeeper://root:secret@{}/read",
        SERVER.address()
    ))
    .await;
    let held = owner.mutex("a").acquire().await.expect("granted");

    let reader = open_as_team("/read").await;
    make(&client, "/read/denied", Permission::NONE).await;
    let listed = reader.list("", 10).await.expect("listed");
    let names: Vec<_> = listed.iter().map(Name::as_str).collect();
    assert_eq!(names, ["a", "denied"]);
    let error = reader.inspect("denied").await.expect_err("denied");
    assert_names(&error, "read", "/read/denied");
    client.delete("/read/denied", None).await.expect("deleted");
    let mut observer = reader.observe("a").await.expect("observed");
    let seen = observer.next().await.expect("observed");
    let seen: Vec<_> = seen.holders().filter_map(Entry::token).collect();
    assert_eq!(seen, [held.token()]);

    held.release().await.expect("released");
    let next = within_timeout("the release is observed", observer.next()).await;
    assert_eq!(next.expect("observed").holders().count(), 0);
    assert!(
        reader
            .inspect("never-used")
            .await
            .expect("inspected")
            .entries
            .is_empty()
    );
    let children = client.list_children("/read").await.expect("listed");
    assert_eq!(children, ["a"], "looking creates no node");

    let nowhere = open_as_team("/read/nowhere").await;
    assert!(nowhere.list("", 10).await.expect("listed").is_empty());
    assert!(
        client
            .check_stat("/read/nowhere")
            .await
            .expect("read")
            .is_none()
    );
}
