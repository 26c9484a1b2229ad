# Installing, and what is made for others to install: `make install`, `make dist`, `make deb`.
#
# The program finds its plugins and the demo model relative to itself, in ../lib/shoal and ../share/shoal, so an
# installed tree can be moved as a whole. Names of folders are those of the GNU coding standards.

PREFIX        ?= /usr/local
prefix        ?= $(PREFIX)
bindir        ?= $(prefix)/bin
libdir        ?= $(prefix)/lib
includedir    ?= $(prefix)/include
datarootdir   ?= $(prefix)/share
mandir        ?= $(datarootdir)/man
docdir        ?= $(datarootdir)/doc/shoal
sysconfdir    ?= $(if $(filter /usr,$(prefix)),/etc,$(prefix)/etc)
unitdir       ?= $(prefix)/lib/systemd/system
bashcompdir   ?= $(datarootdir)/bash-completion/completions
zshcompdir    ?= $(datarootdir)/zsh/site-functions
fishcompdir   ?= $(datarootdir)/fish/vendor_completions.d
pkglibdir      = $(patsubst %/,%,$(dir $(bindir)))/lib/shoal
pkgdatadir     = $(patsubst %/,%,$(dir $(bindir)))/share/shoal

# What is installed is laid out in STAGE first, in one folder for each destination. Both targets go by that tree, so
# they agree on the files.
STAGE        ?= $(B)/stage
LIB_DESTINATIONS = lib=$(libdir) include=$(includedir)
DESTINATIONS  = bin=$(bindir) plugins=$(pkglibdir) data=$(pkgdatadir) man=$(mandir)/man1 doc=$(docdir) \
                bash=$(bashcompdir) zsh=$(zshcompdir) fish=$(fishcompdir) $(LIB_DESTINATIONS) \
                $(if $(filter Linux,$(SYSTEM)),units=$(unitdir) settings=$(sysconfdir)/shoal)

.PHONY: stage install install-lib uninstall dist deb deb-check
stage: program lib
	@packaging/stage.sh $(B) $(STAGE) bindir=$(bindir) sysconfdir=$(sysconfdir) docdir=$(docdir) prefix=$(prefix) \
	    libdir=$(libdir) includedir=$(includedir) version=$(VERSION) packages="$(PKGS)"

install: stage ## install program, library, plugins, demo model, manual, docs and systemd units: PREFIX, DESTDIR
	@packaging/install.sh install $(STAGE) "$(DESTDIR)" $(DESTINATIONS)

install-lib: stage ## install the library alone, with its header and its pkg-config file
	@packaging/install.sh install $(STAGE) "$(DESTDIR)" $(LIB_DESTINATIONS)

uninstall: stage ## remove what `make install` installed; settings that were changed stay
	@packaging/install.sh uninstall $(STAGE) "$(DESTDIR)" $(DESTINATIONS)

dist: ## pack the last commit as build/dist/shoal-VERSION.tar.gz, with SHA256SUMS: the same bytes each time
	@packaging/dist.sh build/dist

deb: ## build a Debian package of the last commit in build/deb
	@packaging/deb.sh build/deb

deb-check: deb ## install that package in a bare Debian 12, made in the folder BARE; serve there, also under systemd
	@packaging/deb_check.sh build/deb $(BARE)
	@packaging/systemd_check.sh build/deb $(BARE)
