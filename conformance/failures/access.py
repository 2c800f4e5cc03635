"""Access control before the published clients: credentials that are right, wrong and missing, permissions, and users that change."""
import base64
import hashlib
import hmac
import json
import os
import sys
import time

from house import PATIENCE_S, SUITE, House, Processes, clients, expect, remoting, wait_for

sys.path.insert(0, str(SUITE / "apache"))
import apache  # noqa: E402
from rows import BOTH, Seen, row  # noqa: E402

UNAUTHORIZED, FORBIDDEN = "UNAUTHORIZED", "FORBIDDEN"
# A changed file counts within this, by promise; the machine may be busy.
RELOAD_S = 2
# How long a client that is not let in may take to say so.
START_S = 30


class Users:
    """The file with the users, in a directory as Kubernetes mounts a Secret: it is replaced as a whole."""

    def __init__(self, folder):
        self.file = folder / "users.yaml"
        self.users = {}

    def give(self, access_key, secret_key, *permissions):
        self.users[access_key] = {"accessKey": access_key, "secretKey": secret_key, "permissions": list(permissions)}

    def write(self):
        new = self.file.with_suffix(".new")
        new.write_text(json.dumps({"users": list(self.users.values())}))
        os.replace(new, self.file)


def guarded(house, users):
    """A sidecar that asks for users."""
    return house.sidecar("guarded", authenticationEnabled="true", authorizationEnabled="true", usersFilePath=f'"{users.file}"')


def refusal(do):
    """How a client tells that it was not let in: its words."""
    try:
        do()
    except (clients.OperationError, TimeoutError) as e:
        return f"{e}"
    return None


def told(error, code):
    """Whether the client's words have the code: by number, by name, or by the name of its exception."""
    number = str(clients.CODES[code])
    return number in error or code.lower() in error.lower()


def counted(sidecar, reason):
    """How many calls the sidecar refused for the reason."""
    return sidecar.metrics().get(f'waybill_access_refused_total{{reason="{reason}"}}', 0)


def send(client, name, topic, body):
    return client.call("send", name=name, topic=topic, body=base64.b64encode(body).decode())


@row("access control: credentials and permissions", kinds=("python", "node", "java", "rust"), seconds=70, modes=(BOTH,))
def credentials(folder, kind, mode):
    """The right user sends and receives. Others are refused at their start or at the call, by name, and nothing of theirs is stored."""
    with House(folder) as house:
        topic, group = house.topic_and_group("t")
        users = Users(folder)
        users.give("shop", "shop-secret", {"topic": topic, "actions": ["PUB", "SUB"]}, {"group": group})
        users.give("other", "other-secret", {"topic": "others*", "actions": ["PUB", "SUB"]}, {"group": "others*"})
        users.write()
        sidecar = guarded(house, users)
        client = house.client(kind, sidecar.endpoint)
        right, words = {"credentials": ["shop", "shop-secret"], "tls": False}, []
        client.call("producer", name="p", topics=[topic], **right)
        send(client, "p", topic, b"one")
        client.call("consumer", name="c", group=group, topic=topic, filter="*", await_s=client.client.await_s, **right)
        got = wait_for("the message comes", PATIENCE_S, lambda: client.receive("c", max=4, invisible_s=20))
        client.call("ack", name="c", ref=got[0]["ref"])
        if "push" in client.features:
            client.call("push", name="w", group=group, topic=topic, filter="*", fail_attempts=0, **right)
            send(client, "p", topic, b"two")
            wait_for("the push consumer gets one", PATIENCE_S, lambda: client.events("w"))

        strangers = {"none": {}, "wrong secret": {"credentials": ["shop", "other-secret"]}, "nobody": {"credentials": ["who", "shop-secret"]},
                     "other": {"credentials": ["other", "other-secret"]}}
        for n, (who, keys) in enumerate(strangers.items()):
            code = FORBIDDEN if who == "other" else UNAUTHORIZED
            stranger = house.client(kind, sidecar.endpoint)

            def try_to_send():
                stranger.call("producer", START_S, name=f"p{n}", topics=[topic], tls=False, **keys)
                send(stranger, f"p{n}", topic, b"not to be stored")

            def try_to_receive():
                stranger.call("consumer", START_S, name=f"c{n}", group=group, topic=topic, filter="*", tls=False, await_s=stranger.client.await_s, **keys)
                stranger.call("receive", START_S, name=f"c{n}", max=4, invisible_s=20)

            for what, attempt in (("sends", try_to_send), ("receives", try_to_receive)):
                error = refusal(attempt)
                expect(error, f"{who} {what}")
                words.append(told(error, code))
        refused = {reason: counted(sidecar, reason) for reason in ("unsigned", "wrong_signature", "unknown_access_key", "forbidden")}
        expect(all(refused.values()), f"all reasons are counted: {refused}")
        expect(house.open_at_broker(topic, group)[0] == 0, lambda: f"nothing of strangers is stored: {house.open_at_broker(topic, group)}")
        for secret in ("shop-secret", "other-secret"):
            expect(secret not in sidecar.log(), f"{secret} is in the log")
        return Seen(note=f"{len(words)} refusals, {sum(words)} of them told by code or name")


@row("access control: users that change", kinds=("python", "java"), seconds=60, modes=(BOTH,))
def changes(folder, kind, mode):
    """What a changed file gives and takes, while clients are there; and a bad file that changes nothing."""
    with House(folder) as house:
        topic, group = house.topic_and_group("t")
        users = Users(folder)
        users.give("shop", "old-secret")
        users.write()
        sidecar = guarded(house, users)
        client = house.client(kind, sidecar.endpoint)
        old = {"credentials": ["shop", "old-secret"], "tls": False}
        error = refusal(lambda: client.call("producer", START_S, name="p0", topics=[topic], **old))
        error = error or refusal(lambda: send(client, "p0", topic, b"too early"))
        # The published Python client does not tell why it gets no route.
        expect(error and counted(sidecar, "forbidden"), f"no permission yet: {error}")

        users.give("shop", "old-secret", {"topic": topic, "actions": ["PUB", "SUB"]}, {"group": group})
        users.write()
        given = time.monotonic()

        def sends(name):
            try:
                client.call("producer", START_S, name=name, topics=[topic], **old)
                send(client, name, topic, b"one")
            except (clients.OperationError, TimeoutError):
                return None
            return time.monotonic() - given
        took = wait_for("the permission counts", PATIENCE_S, lambda: sends("p"), 0.3)
        client.call("consumer", name="c", group=group, topic=topic, filter="*", await_s=client.client.await_s, **old)
        wait_for("the message comes", PATIENCE_S, lambda: client.receive("c", max=4, invisible_s=20))

        bad = users.file.with_suffix(".new")
        bad.write_text("users: [{ accessKey: shop, secretKey: never-told, permissions: nonsense }]")
        os.replace(bad, users.file)
        wait_for("the mistake is told", PATIENCE_S, lambda: sidecar.metrics().get("waybill_users_in_force") == 0)
        send(client, "p", topic, b"two")
        expect("never-told" not in sidecar.log(), "the log repeats what is in the file")

        del users.users["shop"]
        users.give("shop", "new-secret", {"topic": topic, "actions": ["PUB", "SUB"]}, {"group": group})
        users.write()
        wait_for("the file is in force", PATIENCE_S, lambda: sidecar.metrics().get("waybill_users_in_force") == 1)
        error = refusal(lambda: send(client, "p", topic, b"with the old secret"))
        expect(error and counted(sidecar, "wrong_signature"), f"the old secret: {error}")
        fresh = house.client(kind, sidecar.endpoint)
        fresh.call("producer", name="p", topics=[topic], credentials=["shop", "new-secret"], tls=False)
        send(fresh, "p", topic, b"three")
        return Seen(note=f"a permission counted after {took:.1f} s (promised {RELOAD_S} s after the file's change, and the client's start)")


def signed(ext, access_key, secret_key, body=b""):
    """The fields of a request as Apache's broker asks for them: the values in the order of their names, and the body, are signed."""
    ext = {name: str(value) for name, value in ext.items()} | {"AccessKey": access_key}
    content = "".join(ext[name] for name in sorted(ext)).encode() + body
    return ext | {"Signature": base64.b64encode(hmac.new(secret_key.encode(), content, hashlib.sha1).digest()).decode()}


@row("access control: requests to Apache's broker are signed", seconds=60, modes=(BOTH,))
def before_apache(folder, kind, mode):
    """Apache's broker asks who calls: a sidecar with credentials is served, one with wrong ones or none is not."""
    part = "org.apache.rocketmq.auth.authentication.provider."
    root = json.dumps({"username": "root", "password": "root-secret"})
    asks = {"authenticationEnabled": "true", "authenticationProvider": f"{part}DefaultAuthenticationProvider",
            "authenticationMetadataProvider": f"{part}LocalAuthenticationMetadataProvider", "authConfigPath": str(folder / "auth"),
            "initAuthenticationUser": root, "innerClientAuthenticationCredentials": json.dumps({"accessKey": "root", "secretKey": "root-secret"})}
    with Processes(folder) as house:
        a = apache.Apache(dir=folder / "apache", broker_set=apache.PATIENT | asks, detached=False)
        house.stack.callback(a.stop)
        a.up(proxy=False)
        house.announced, topic = a.namesrv, "signed"
        header = remoting.topic_header(topic)
        remoting.call(a.broker, remoting.UPDATE_AND_CREATE_TOPIC, signed(header, "root", "root-secret"))
        admin = remoting.Admin(f"{a.namesrv},{a.broker}")
        wait_for("the topic has a route", PATIENCE_S, lambda: admin.topic_routed(topic))
        for name, secret_key in (("right", "root-secret"), ("wrong", "another"), ("none", None)):
            settings = {}
            if secret_key:
                file = folder / f"{name}.credentials.yaml"
                file.write_text(json.dumps({"accessKey": "root", "secretKey": secret_key}))
                settings["brokerCredentialsPath"] = f'"{file}"'
            sidecar = house.sidecar(name, **settings)
            client = house.client(kind, sidecar.endpoint)

            def go(start_s=None):
                client.call("producer", start_s, name="p", topics=[topic])
                send(client, "p", topic, b"one")
                client.call("consumer", start_s, name="c", group="signers", topic=topic, filter="*", await_s=client.client.await_s)
                got = wait_for("the message comes", PATIENCE_S, lambda: client.receive("c", max=4, invisible_s=20))
                client.call("ack", name="c", ref=got[0]["ref"])
            if name == "right":
                go()
            else:
                expect(refusal(lambda: go(START_S)), f"{name} credentials are taken")
        return Seen(note="sent, received and acknowledged with credentials; refused with wrong ones and without")
