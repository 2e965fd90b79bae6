//! Logins, and the errors of URLs.

use std::error::Error as _;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use lab_servers::{Certificates, PgBouncer, Postgres};
use leasehold::Error;
use leasehold_conformance::support::eventually;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy};
use tokio::net::{TcpListener, TcpStream};

use crate::sessions::terminate;
use crate::{Database, Program, SERVER, open, open_error, use_once};

const PASSWORD: &str = "pass-w0rd";

/// Returns a role with a password, which the server demands.
fn role_with_password(database: &Database<'_>, role: &str) {
    database.run(&format!(
        "CREATE ROLE {role} LOGIN SUPERUSER PASSWORD '{PASSWORD}'"
    ));
    SERVER.require(&format!("host all {role} 127.0.0.1/32 scram-sha-256"));
}

fn assert_no_secret(error: &Error) {
    let text = format!("{error} {error:?} {:?}", error.hint());
    for secret in [PASSWORD, "wr0ng"] {
        assert!(!text.contains(secret), "{text}");
    }
}

#[tokio::test]
async fn mode_that_may_fall_back_is_refused_by_name() {
    for mode in ["prefer", "allow", "require", "verify-ca", "", "Disable"] {
        let error = open_error(&format!("postgres://u:{PASSWORD}@db/d?sslmode={mode}")).await;
        assert!(error.is_invalid(), "{error}");
        let text = error.to_string();
        assert!(text.contains(&format!("sslmode={mode}")), "{text}");
        assert!(text.contains("write sslmode=verify-full"), "{text}");
        assert_no_secret(&error);
    }
    for url in [
        "postgres://u@db",
        "postgres://u@db/",
        "postgres://u@db/a/b",
        "postgres://u@db/d?schema=Own",
        "postgres://u@db/d?schema=user",
        "postgres://u@db/d?schema=pg_own",
        "postgres://u@db/d?crash-grace=1ms",
        "postgres://u@a,b/d?direct=c",
        "postgres://u@db/d?host=/run",
        "postgres://u@127.0.0.1/d?ca=/ca.crt",
        "postgres://u@db/d?statement_timeout=1",
    ] {
        assert!(open_error(url).await.is_invalid(), "{url}");
    }
}

#[tokio::test]
async fn cause_of_a_failed_login_is_named() {
    let database = Database::new();
    role_with_password(&database, "failing_login");
    let at = |login: &str| format!("postgres://{login}@{}", SERVER.address());
    for login in ["failing_login:wr0ng", "failing_login"] {
        let error = open_error(&format!("{}/{}", at(login), database.name)).await;
        assert!(error.is_denied(), "{error}");
        assert_no_secret(&error);
    }

    let login = format!("failing_login:{PASSWORD}");
    let error = open_error(&format!("{}/no_such_database", at(&login))).await;
    assert!(error.is_invalid(), "{error}");
    assert!(error.to_string().contains("no_such_database"), "{error}");
    assert_no_secret(&error);

    let refused = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = refused.local_addr().expect("it is bound");
    drop(refused);
    let error = open_error(&format!("postgres://{login}@{address}/{}", database.name)).await;
    assert!(error.is_unavailable(), "{error}");
    assert_no_secret(&error);

    // A server without TLS.
    let error = open_error(&format!("{}?sslmode=verify-full", database.url())).await;
    assert!(error.is_denied(), "{error}");
    assert!(error.to_string().contains("?sslmode=disable"), "{error}");
}

/// The messages of the server and of a pooler name the user.
///
/// Shows G-35.
#[tokio::test]
async fn refused_login_does_not_show_the_user() {
    let database = Database::new();
    role_with_password(&database, "quser_wrong");
    database.run("CREATE ROLE quser_full LOGIN CONNECTION LIMIT 0");
    let pooler = PgBouncer::start(&SERVER, "transaction");
    for (user, address, code) in [
        ("quser_wrong:wr0ng", SERVER.address(), "28P01"),
        ("quser_missing", SERVER.address(), "28000"),
        ("quser_full", SERVER.address(), "53300"),
        // It has a line in the file of the pooler.
        ("app", pooler.address(), "08P01"),
    ] {
        let error = open_error(&format!("postgres://{user}@{address}/{}", database.name)).await;
        let causes = std::iter::successors(error.source(), |cause| (*cause).source());
        let causes: Vec<String> = causes.map(|cause| format!("{cause} {cause:?}")).collect();
        let text = format!("{error} {error:?} {:?} {causes:?}", error.hint());
        assert!(text.contains(code), "{text}");
        assert!(!text.contains("quser") && !text.contains("\"app"), "{text}");
    }
}

#[tokio::test]
async fn name_that_the_encoding_lacks_is_refused() {
    let name = Database::new().name + "_latin1";
    let made = SERVER.run(&format!(
        "CREATE DATABASE {name} ENCODING LATIN1 LOCALE 'C' TEMPLATE template0"
    ));
    assert_eq!(made, [""; 0]);
    let server = &*SERVER;
    let locks = open(&Database { server, name }.url()).await;
    use_once(&locks, "\u{fc}").await;
    let error = locks.mutex("\u{65e5}\u{672c}").acquire().await;
    let error = error.expect_err("it is refused");
    assert!(error.is_invalid(), "{error:?}");
    assert!(error.to_string().contains("LATIN1"), "{error}");
}

#[tokio::test]
async fn login_is_read_from_the_url_a_file_or_the_environment() {
    let database = Database::new();
    let role = "password_login";
    role_with_password(&database, role);
    let place = format!("{}/{}", SERVER.address(), database.name);
    let url = format!("postgres://{role}@{place}");
    use_once(
        &open(&format!("postgres://{role}:{PASSWORD}@{place}")).await,
        "b",
    )
    .await;

    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("password");
    let write = |text: &str, mode: u32| {
        fs::write(&file, text).expect("written");
        fs::set_permissions(&file, Permissions::from_mode(mode)).expect("set");
    };
    write(&format!("{PASSWORD}\n"), 0o600);
    let path = file.to_str().expect("the path is UTF-8");
    use_once(&open(&format!("{url}?password-file={path}")).await, "b").await;

    let start = |url: &str, environment: &[(&str, &str)]| {
        let url = format!("{url}?crash-grace=500ms");
        Program::start(&url, environment).outcome.clone()
    };
    assert_eq!(start(&url, &[("PGPASSWORD", PASSWORD)]), "holds");
    let without_user = format!("postgres://{place}");
    let both = [("PGUSER", role), ("PGPASSWORD", PASSWORD)];
    assert_eq!(start(&without_user, &both), "holds");
    // Another shell's database would be another store.
    let elsewhere = [
        ("PGPASSWORD", PASSWORD),
        ("PGHOST", "db"),
        ("PGDATABASE", "other"),
        ("PGPORT", "1"),
    ];
    assert_eq!(start(&url, &elsewhere), "holds");

    let line = format!("127.0.0.1:*:{}:{role}:{PASSWORD}\n", database.name);
    write(&line, 0o600);
    assert_eq!(start(&url, &[("PGPASSFILE", path)]), "holds");
    write(&line, 0o640);
    assert!(start(&url, &[("PGPASSFILE", path)]).starts_with("Denied"));
    let wrong = [("PGPASSFILE", path), ("PGPASSWORD", "wr0ng")];
    write(&line, 0o600);
    let refused = start(&url, &wrong);
    assert!(
        refused.starts_with("Denied") && !refused.contains("wr0ng"),
        "{refused}"
    );
}

/// An operator changes the password of the role and of the file, and then the sessions end.
#[tokio::test]
async fn each_connection_reads_the_password_again() {
    let database = Database::new();
    let role = "rotated_login";
    role_with_password(&database, role);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let [file, lines] = ["password", "pgpass"].map(|name| folder.path().join(name));
    let change = |password: &str| {
        database.run(&format!("ALTER ROLE {role} PASSWORD '{password}'"));
        let line = format!("*:*:*:{role}:{password}");
        for (file, text) in [(&file, password), (&lines, &line)] {
            fs::write(file, text).expect("written");
            fs::set_permissions(file, Permissions::from_mode(0o600)).expect("set");
        }
    };

    let place = format!("{}/{}", SERVER.address(), database.name);
    let url = format!("postgres://{role}@{place}?crash-grace=500ms");
    let by_file = format!("{url}&password-file={}", file.display());
    let lines = lines.to_str().expect("the path is UTF-8");
    for (url, environment) in [(&by_file, &[][..]), (&url, &[("PGPASSFILE", lines)])] {
        change(PASSWORD);
        let program = Program::start(url, environment);
        assert_eq!(program.outcome, "holds");
        change("an0ther");
        let now = database.run("SELECT clock_timestamp()").remove(0);
        terminate(&database, &format!("usename = '{role}'"));
        let sessions = format!(
            "SELECT count(*) FROM pg_stat_activity \
             WHERE usename = '{role}' AND state IS NOT NULL AND backend_start > '{now}'"
        );
        eventually("it has logged in again", async || {
            database.run(&sessions) == ["2"]
        })
        .await;
    }
}

/// The name and the authority of the certificate are verified before the password is sent.
///
/// Shows G-29.
#[tokio::test]
async fn certificate_of_the_server_is_verified() {
    let certificates = Certificates::of_servers("DNS:localhost");
    let server = Postgres::with_tls(&certificates);
    let address = server.address();
    let url = |host: &str, ca: &str| {
        let at = address.replace("127.0.0.1", host);
        let ca = certificates.file(ca);
        let ca = ca.display();
        format!("postgres://postgres:{PASSWORD}@{at}/postgres?sslmode=verify-full&ca={ca}")
    };
    let locks = open(&url("localhost", "ca.crt")).await;
    use_once(&locks, "a").await;
    let encrypted = "SELECT count(*) FROM pg_stat_ssl s JOIN pg_stat_activity a USING (pid) \
        WHERE s.ssl AND a.application_name = 'leasehold'";
    assert_eq!(server.run(encrypted), ["2"]);

    for (host, ca, reason) in [
        ("127.0.0.1", "ca.crt", "not valid for"),
        ("localhost", "other.crt", "UnknownIssuer"),
    ] {
        let error = open_error(&url(host, ca)).await;
        assert!(error.is_denied() || error.is_unavailable(), "{error:?}");
        assert!(error.to_string().contains(reason), "{error}");
        assert_no_secret(&error);
    }
    assert_eq!(server.run(encrypted), ["2"], "no other session was opened");
}

/// An old server has no such setting, and others have it and refuse each value.
#[tokio::test]
async fn server_without_a_setting_that_locks_depend_on_is_refused() {
    let database = Database::new();
    let address = server_without("client_connection_check_interval").await;
    let error = open_error(&database.url_at(&address)).await;
    assert!(error.is_unsupported(), "{error}");
    let reason = "refuses a setting that locks depend on: unrecognized configuration parameter";
    assert!(error.to_string().contains(reason), "{error}");
}

/// Leads to the server, which reads another name in place of that of a setting.
async fn server_without(setting: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("it has one").to_string();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let server = TcpStream::connect(SERVER.address()).await;
            let (mut replies, mut to_server) = server.expect("connected").into_split();
            let (mut requests, mut to_client) = client.into_split();
            tokio::spawn(async move { copy(&mut replies, &mut to_client).await });
            tokio::spawn(async move {
                let mut piece = vec![0; 1 << 16];
                while let Ok(length @ 1..) = requests.read(&mut piece).await {
                    let mut words = piece[..length].windows(setting.len());
                    if let Some(at) = words.position(|word| word == setting.as_bytes()) {
                        piece[at] = b'x';
                    }
                    let written = to_server.write_all(&piece[..length]).await;
                    written.expect("the server reads on");
                }
            });
        }
    });
    address
}
