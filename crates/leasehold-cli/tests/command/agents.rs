//! docs/agents-and-worktrees.md: its scripts run in a worktree, from top to bottom.

use crate::sandbox::Sandbox;

const PAGE: &str = include_str!("../../../../docs/agents-and-worktrees.md");

/// A repository `api` with a remote, a worktree that is one commit ahead, and what the page starts.
const WORKTREE: &str = r#"set -e
unset LEASEHOLD_NAME PORT
export GIT_CONFIG_COUNT=2 GIT_CONFIG_KEY_0=user.name GIT_CONFIG_KEY_1=user.email
export GIT_CONFIG_VALUE_0=agent GIT_CONFIG_VALUE_1=agent@example.com
git init -q -b main api
git -C api commit -q --allow-empty -m first
git clone -q --bare api origin.git
git -C api remote add origin "$PWD/origin.git"
git -C api worktree add -q ../agent-2
cd agent-2
git commit -q --allow-empty -m 'from the worktree'
for name in integration-tests.sh npm tests.sh migrate.sh deploy-to-staging.sh; do
  printf '#!/bin/sh\necho "%s $LEASEHOLD_NAME $PORT" >> ../ran\n' "$name" > "$name"
  chmod +x "$name"
done
PATH=$PWD:$PATH
"#;

#[test]
fn scripts_of_agents_run_in_a_worktree() {
    let blocks = PAGE.split("```sh\n").skip(1);
    let blocks: Vec<_> = blocks.filter_map(|rest| rest.split("```").next()).collect();
    assert_eq!(blocks.len(), 5);

    let sandbox = Sandbox::new();
    let pushed = "git -C ../origin.git log --format=%s main > ../pushed\necho \"$repo\"\n";
    let script = [WORKTREE, &blocks.concat(), pushed].concat();
    let done = sandbox.run_script("sh", &script);
    assert_eq!(done.code(), 0, "{done:?}");
    assert!(done.out.ends_with("\napi\n"), "{done:?}");

    let ran = "integration-tests.sh test-db \nnpm dev-server 3000\ntests.sh schema \n\
               migrate.sh schema \ndeploy-to-staging.sh  \n";
    assert_eq!(sandbox.read("ran"), ran);
    assert_eq!(sandbox.read("pushed"), "from the worktree\nfirst\n");
    assert!(sandbox.is_free("staging"));
}
