"""The console beside clusters of three brokers: one loses a broker, another has TLS, users and ACLs."""

from __future__ import annotations

import contextlib
import importlib
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import console_keyboard
from console_attacks import NAMES
from console_checks import SLOW_MS, WAYS, Suite, new_broker, running_console
from playwright.sync_api import expect

import barnabas

COMMAND_TIMEOUT_S = 600
ORDERS = 3_000
PARTITIONS = 3
FIRST = '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}'
SECOND = FIRST.replace("]}", ', {"name": "city", "type": "string", "default": ""}]}')
SUBJECT = "orders-value"
TOPIC_PAGES = (
    "/topic?name={}",
    "/records?topic={}&from=beginning",
    "/record?topic={}&partition=0&offset=0",
    "/produce?topic={}",
    "/completeness/topic?topic={}",
)
PAGES = (
    "/",
    "/topics",
    "/topics/tree",
    *(each.format("orders") for each in TOPIC_PAGES),
    "/completeness/topic?topic=a-clicks",
    "/groups",
    "/group?name=reports",
    "/group/reset?name=reports&to=earliest",
    "/completeness",
    "/schemas",
    f"/schema?name={SUBJECT}",
    "/security",
    "/security?principal=User:bob&operation=read&kind=topic&resource=orders&address=",
)
FEW_RIGHTS = (
    "/",
    "/topics",
    "/topics/tree",
    *(each.format("orders") for each in TOPIC_PAGES),
    "/groups",
    "/group?name=reports",
    "/schemas",
    "/security",
)
FORBIDDEN = (
    "/completeness",
    *(each.format("private") for each in TOPIC_PAGES[:4]),
    "/group?name=others",
    "/group/reset?name=others&to=latest",
    f"/schema?name={SUBJECT}",
)


def cluster(suite: Suite) -> None:
    """Kill a broker of three while the overview is open, and start it again."""
    process_cluster: Any = importlib.import_module("tests.support.process_cluster")
    zookeeper_servers: Any = importlib.import_module("tests.support.zookeeper_servers")
    with ExitStack() as stack:
        servers = zookeeper_servers.start_servers(suite.folder / "zookeeper")
        stack.callback(servers.stop)
        (suite.folder / "cluster").mkdir()
        running = process_cluster.Cluster(suite.folder / "cluster", servers, "/console")
        for each in running.brokers.values():
            stack.callback(each.close)
        running.start()
        with barnabas.Admin(running.bootstrap) as admin:
            admin.create_topic("clicks", 6, replication_factor=3)
            admin.create_topic("alone", 3, replication_factor=1)
            admin.set_group_offsets("readers", {("clicks", 0): 0})
        running.wait_until_in_sync("clicks", 3)
        with barnabas.Producer(running.bootstrap) as producer:
            for number in range(300):
                producer.send("clicks", b"%d" % number, partition=number % 6)
                producer.send("alone", b"%d" % number, partition=number % 3)
        console = stack.enter_context(running_console(running.bootstrap, "--allow-changes"))
        pages = ("/", "/topics", "/topic?name=clicks", "/topic?name=alone", "/groups", "/group?name=readers")
        suite.show_all("cluster", console.url, pages)
        with suite.tab(console.url) as tab:
            page = tab.open("/")
            figure = page.locator(".figures div")
            expect(figure.filter(has_text="Under-replicated")).to_contain_text("0")
            expect(page.get_by_role("region", name="Brokers").locator("tbody tr")).to_have_count(3)
            running.brokers[2].kill()
            under = figure.filter(has_text="Under-replicated").locator("dd")
            expect(under).not_to_have_text("0", timeout=SLOW_MS)
            offline = figure.filter(has_text="Offline partitions").locator("dd")
            expect(offline).not_to_have_text("0", timeout=SLOW_MS)
            expect(page.get_by_role("region", name="Brokers").locator("tbody tr")).to_have_count(2, timeout=SLOW_MS)
            expect(page.get_by_text("Broker 2 is not in the cluster now")).to_be_visible(timeout=SLOW_MS)
            suite.say(f"one of three brokers is dead: {under.inner_text()} partitions are under-replicated")
            suite.show_all(
                "broker-dead", console.url, (*pages, "/records?topic=clicks", "/records?topic=alone", "/completeness")
            )
            running.brokers[2].restart()
            expect(under).to_have_text("0", timeout=2 * SLOW_MS)
            expect(offline).to_have_text("0", timeout=SLOW_MS)
            expect(page.get_by_role("region", name="Brokers").locator("tbody tr")).to_have_count(3)
            expect(page.get_by_text("not in the cluster now")).to_have_count(0)
            expect(page.locator("#trouble")).to_be_hidden()
    suite.say("the overview shows the death and the return of a broker")


def run(*words: str) -> str:
    """Run `barnabas` with arguments. Return its output."""
    command = [sys.executable, "-m", "barnabas.cli.main", *words]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S)
    if done.returncode:
        raise SystemExit(f"barnabas {' '.join(words)}: {done.stderr}")
    return done.stdout


@contextlib.contextmanager
def running_registry(profile: Path, certificate: Path, log: Path) -> Iterator[str]:
    """Run a registry with HTTPS until the block ends. Yield its address."""
    command = [sys.executable, "-m", "barnabas.cli.main", "--profile", str(profile), "registry", "--port", "0"]
    command += ["--http-certfile", str(certificate), "--super-users", "User:admin"]
    with log.open("wb") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
    try:
        assert process.stdout
        ready = process.stdout.readline()
        if not ready.startswith("ready "):
            raise SystemExit(f"the registry did not start: {log.read_text()[-2_000:]}")
        yield ready.split()[1]
    finally:
        process.terminate()
        process.wait(60)


class Secured:
    """Three brokers with TLS, SCRAM and ACLs, and all programs that the console shows.

    :param folder: the folder of `barnabas security init`.
    """

    def __init__(self, access: Any, folder: Path) -> None:
        self.access = access
        self.folder = folder
        self.warehouse = folder / "warehouse"
        self.passwords = {"admin": access.password, "bob": "bob-secret-1", "carol": "carol-secret-1"}

    def fill(self, suite: Suite) -> None:
        """Create topics, users, rules, records with reports, a mirrored topic and a table."""
        from barnabas import AclBinding, AclEntry, Operation, Permission, ResourcePattern, ResourceType  # noqa: PLC0415

        settings = self.access.ours()

        def allow(principal: str, kind: ResourceType, name: str, *operations: Operation) -> list[AclBinding]:
            pattern = ResourcePattern(kind, name)
            return [AclBinding(pattern, AclEntry(principal, "*", each, Permission.ALLOW)) for each in operations]

        with barnabas.Admin(**settings) as admin:
            for topic in ("orders", "private"):
                admin.create_topic(topic, PARTITIONS, replication_factor=3)
            for name in ("bob", "carol", "registry"):
                admin.set_user_password(name, self.passwords.get(name, "registry-secret-1"))
            rules = allow("User:bob", ResourceType.TOPIC, "orders", Operation.READ, Operation.DESCRIBE)
            rules += allow("User:bob", ResourceType.GROUP, "reports", Operation.DESCRIBE)
            rules += allow(f"User:{NAMES[0]}", ResourceType.TOPIC, "orders", Operation.WRITE)
            rules.append(
                AclBinding(
                    ResourcePattern(ResourceType.TOPIC, "private"),
                    AclEntry("User:bob", "192.0.2.1", Operation.ALL, Permission.DENY),
                )
            )
            admin.create_acls(rules)
            admin.alter_client_quotas({"user": "bob"}, {"consumer_byte_rate": 10_000_000.0})
            admin.set_group_offsets("reports", {("orders", each): 0 for each in range(PARTITIONS)})
            admin.set_group_offsets("others", {("private", 0): 0})
        with barnabas.Producer(**settings, audit=True, client_id=NAMES[0]) as producer:
            for number in range(ORDERS):
                value = b'{"order": %d}' % number
                producer.send("orders", value, partition=number % PARTITIONS, timestamp_ms=number * 60)
        self._mirror(suite)
        admin_profile = self.folder / "admin.toml"
        run("--profile", str(admin_profile), "load", "orders", "--warehouse", str(self.warehouse))
        with barnabas.Producer(**settings, audit=True, client_id="late shop") as producer:
            for number in range(30):
                producer.send("orders", b"{}", partition=0, timestamp_ms=(ORDERS + number) * 60)

    def _mirror(self, suite: Suite) -> None:
        """Mirror an audited topic of another cluster."""
        with new_broker(suite, "source") as source:
            with barnabas.Admin(source.bootstrap) as admin:
                admin.create_topic("clicks", 2)
            with barnabas.Producer(source.bootstrap, audit=True, client_id="shop") as producer:
                for number in range(1_000):
                    producer.send("clicks", b"%d" % number, partition=number % 2, timestamp_ms=number * 180)
            run(
                "mirror", "--from", source.bootstrap, "--to-profile", str(self.folder / "admin.toml"),
                "--topics", "clicks", "--prefix", "a-", "--once",
            )  # fmt: skip

    def _profile(self, user: str, password: str) -> Path:
        """Write the profile of a user."""
        secret = self.folder / f"{user}.password"
        secret.write_text(password)
        secret.chmod(0o600)
        text = (self.folder / "admin.toml").read_text().replace("admin.password", secret.name)
        file = self.folder / f"{user}.toml"
        file.write_text(text.replace('sasl_username = "admin"', f'sasl_username = "{user}"'))
        return file

    @contextlib.contextmanager
    def registry(self) -> Iterator[str]:
        """Run a registry with a subject of two versions. Yield its address."""
        certificate = self.folder / "registry.pem"
        hosts = "localhost,127.0.0.1"
        run("security", "certificate", str(self.folder), "registry", "--host", hosts, "-o", str(certificate))
        profile = self._profile("registry", "registry-secret-1")
        with running_registry(profile, certificate, self.folder / "registry.log") as url:
            registry = barnabas.SchemaRegistry(
                url, username="admin", password=self.access.password, ssl_cafile=str(self.access.ca)
            )
            for text in (FIRST, SECOND):
                registry.register(SUBJECT, barnabas.Schema(text))
            yield url

    @contextlib.contextmanager
    def console(self, registry: str) -> Iterator[Any]:
        """Run a console with HTTPS and sign-in."""
        options = [
            "-X", "security.protocol=SASL_SSL", "-X", f"ssl.ca.location={self.access.ca}",
            "-X", "sasl.mechanism=SCRAM-SHA-512", "-X", f"schema.registry.ssl.cafile={self.access.ca}",
            "--registry", registry, "--warehouse", str(self.warehouse), "--allow-changes",
            "--http-certfile", str(self.folder / "registry.pem"),
        ]  # fmt: skip
        with running_console(self.access.bootstrap, *options) as console:
            yield console


def secured(suite: Suite) -> None:
    """Show all pages of a secured cluster to an administrator, to a user with few rights, and to one without rights."""
    secured_clusters: Any = importlib.import_module("tests.support.secured_clusters")
    with ExitStack() as stack:
        folder = suite.folder / "three"
        access = stack.enter_context(secured_clusters.secured_barnabas(folder))
        places = Secured(access, folder / "secured")
        places.fill(suite)
        registry = stack.enter_context(places.registry())
        console = stack.enter_context(places.console(registry))
        sign_in_page(suite, console)
        states = {user: signed_in(suite, console, user, word) for user, word in places.passwords.items()}
        suite.show_all("admin", console.url, PAGES, **states["admin"])
        with suite.tab(console.url, **states["admin"]) as tab:
            for path in PAGES:
                console_keyboard.walk(suite, tab, path)
        check_schema(suite, console, states["admin"])
        suite.show_all("bob", console.url, FEW_RIGHTS, **states["bob"])
        # The list of completeness shows the refusal later if it takes long.
        statuses = {path: (200, 403) if path == "/completeness" else (403,) for path in FORBIDDEN}
        suite.show_all("bob", console.url, FORBIDDEN, statuses, **states["bob"])
        suite.show_all("carol", console.url, ("/", "/topics", "/groups", "/schemas", "/security"), **states["carol"])
        few_rights(suite, console, states["bob"])


def sign_in_page(suite: Suite, console: Any) -> None:
    """Show the page, also after a wrong password, and check that all others lead to it."""
    with suite.tab(console.url, ignore_https_errors=True) as tab:
        console_keyboard.walk(suite, tab, "/sign-in")
    for way in WAYS:
        with suite.tab(console.url, way, ignore_https_errors=True) as tab:
            suite.show(tab, "sign-in", "/sign-in")
            tab.expects_failures = True
            page = tab.page
            page.get_by_label("User").fill(NAMES[0])
            page.get_by_label("Password").fill("wrong")
            page.keyboard.press("Enter")
            expect(page.get_by_role("alert")).to_contain_text("reject", timeout=SLOW_MS)
            suite.check(tab, "/sign-in")
            suite.picture(tab, f"sign-in-wrong-{way}")
            for path in (*PAGES, *FORBIDDEN):
                tab.open(path)
                if not page.url.endswith("/sign-in"):
                    suite.fault(f"{path} does not ask for a user")


def signed_in(suite: Suite, console: Any, user: str, password: str) -> dict[str, Any]:
    """Sign in with the keyboard. Return the options of the browser's contexts of this user."""
    with suite.tab(console.url, ignore_https_errors=True) as tab:
        page = tab.open("/")
        page.keyboard.type(user)
        page.keyboard.press("Tab")
        page.keyboard.type(password)
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="Overview")).to_be_visible(timeout=SLOW_MS)
        cookies = tab.context.cookies()
        if not all(each["secure"] and each["httpOnly"] and each["sameSite"] == "Strict" for each in cookies):
            suite.fault(f"a cookie of the session is not protected: {cookies}")
        if page.evaluate("() => document.cookie"):
            suite.fault("scripts can read the cookie of the session")
        return {"storage_state": tab.context.storage_state(), "ignore_https_errors": True}


def check_schema(suite: Suite, console: Any, state: dict[str, Any]) -> None:
    """Check schemas that can and cannot become the next version."""
    with suite.tab(console.url, **state) as tab:
        page = tab.open(f"/schema?name={SUBJECT}")
        expect(page.locator("ins").filter(has_text="city")).to_have_count(1)
        for text, answer in (
            (SECOND, "can become version 3"),
            (FIRST.replace("int", "string"), "cannot become version 3"),
            ("<script>alert(1)</script>", "cannot become version 3"),
        ):
            page.get_by_label("Schema").fill(text)
            page.get_by_role("button", name="Check").click()
            expect(page.locator("#content")).to_contain_text(answer)
            suite.check(tab, "/schema/check")
        suite.picture(tab, "schema-check")


def few_rights(suite: Suite, console: Any, state: dict[str, Any]) -> None:
    """Check what a user sees who may only read one topic, and that each refusal names the missing permission."""
    with suite.tab(console.url, **state) as tab:
        page = tab.open("/topics")
        expect(page.get_by_role("link", name="orders")).to_have_count(1)
        for path in ("/topics", "/topics/tree", "/groups", "/schemas"):
            tab.open(path)
            for hidden in ("private", "a-clicks", "others", SUBJECT):
                if page.get_by_text(hidden).count():
                    suite.fault(f"{path} shows {hidden} to a user who may not see it")
        tab.expects_failures = True
        for path, missing in (
            ("/topic?name=private", "DESCRIBE on topic:private"),
            ("/records?topic=private", "DESCRIBE on topic:private"),
            ("/group?name=others", "DESCRIBE on group:others"),
            (f"/schema?name={SUBJECT}", SUBJECT),
            ("/completeness", "DESCRIBE on topic:_audit"),
            ("/completeness/topic?topic=orders", "DESCRIBE on topic:_audit"),
            ("/security", "DESCRIBE on cluster"),
        ):
            tab.open(path)
            expect(page.locator("progress")).to_have_count(0, timeout=SLOW_MS)
            says(suite, tab, path, missing)
        tab.open("/produce?topic=orders")
        page.get_by_label("Value", exact=True).fill("x")
        page.get_by_role("button", name="Send").click()
        page.wait_for_load_state()
        says(suite, tab, "produce", "WRITE on topic:orders")
        suite.picture(tab, "bob-produce")
        tab.open("/group/reset?name=reports&to=latest")
        page.get_by_role("button", name="Set these offsets").click()
        page.wait_for_load_state()
        says(suite, tab, "reset", "READ on group:reports")
        suite.picture(tab, "bob-reset")
        page.get_by_role("button", name="Sign out").click()
        expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
        tab.open("/topics")
        if not page.url.endswith("/sign-in"):
            suite.fault("a user who has signed out sees topics")


def says(suite: Suite, tab: Any, path: str, text: str) -> None:
    """Check that a page contains a text in a problem."""
    found: Sequence[str] = tab.page.locator(".problem:visible, .hint:visible").all_inner_texts()
    if not any(text in each for each in found):
        suite.fault(f"{path} does not name what is missing ({text}): {found}")
