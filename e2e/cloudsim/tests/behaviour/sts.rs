use crate::client::{Client, Reply};

const ROLE: &str = "arn:aws:iam::210987654321:role/manager";

async fn assume(client: &Client, role: &str, token: &str) -> Reply {
    let pairs = [
        ("RoleArn", role),
        ("RoleSessionName", "s"),
        ("WebIdentityToken", token),
    ];
    client
        .send("2011-06-15", "AssumeRoleWithWebIdentity", &pairs)
        .await
        .unwrap()
}

#[tokio::test]
async fn a_role_is_assumed_with_a_token_in_the_form_of_a_jwt() {
    let client = Client::new();
    let first = assume(&client, ROLE, "e30.e30.c2ln").await;
    assert_eq!(
        first.one("Arn"),
        "arn:aws:sts::210987654321:assumed-role/manager/s"
    );
    let key = first.one("AccessKeyId");
    assert!(key.starts_with("ASIA"), "{key}");
    let second = assume(&client, ROLE, "e30.e30.c2ln").await;
    assert_ne!(second.one("AccessKeyId"), key);
    let bad = assume(&client, ROLE, "token").await;
    assert_eq!(
        (bad.status, bad.one("Code").as_str()),
        (400, "InvalidIdentityToken")
    );
    let bad = assume(&client, "manager", "e30.e30.c2ln").await;
    assert_eq!(bad.one("Code"), "ValidationError");
}
