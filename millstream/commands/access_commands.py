"""The commands `millstream access`: hashes of passwords and tokens, for [access.users] of a server's configuration."""

from __future__ import annotations

import sys

import typer

from millstream.errors import ServerError

from .command_line import command_group, one_sentence_errors


class NoPassword(ServerError):
    """Nothing was given to make a hash of."""

    code = "NO_PASSWORD"


def access_app() -> typer.Typer:
    app = command_group("Passwords and tokens for a server's users.")

    @app.command("password")
    def password() -> None:
        """Read a password and print its hash, which the configuration keeps in its place."""
        with one_sentence_errors():
            from millstream.server.security.access import hash_password

            typer.echo(hash_password(_given()))

    @app.command("scram")
    def scram() -> None:
        """Read a password and print what the configuration keeps of it for Kafka clients that use SCRAM."""
        with one_sentence_errors():
            from millstream.server.security.scram_texts import scram_texts

            typer.echo("\n".join(scram_texts(_given())))

    @app.command("token")
    def token() -> None:
        """Make a token. The first line is for its user and is kept nowhere; the second is for the configuration."""
        with one_sentence_errors():
            from millstream.server.security.access import hash_token, new_token

            made = new_token()
            typer.echo(f"token: {made}\nhash:  {hash_token(made)}")

    return app


def _given() -> str:
    given = _asked() if sys.stdin.isatty() else sys.stdin.readline().rstrip("\r\n")
    if not given:
        raise NoPassword("no password was given")
    return given


def _asked() -> str:
    """Twice, unseen."""
    import getpass

    first = getpass.getpass("Password: ")
    if getpass.getpass("Once more: ") != first:
        raise NoPassword("the two are not the same")
    return first
