# The scheduler's image, for both architectures at once:
#
#   docker buildx build --platform linux/amd64,linux/arm64 -f deploy/images/scheduler.Dockerfile \
#     --build-arg VERSION=v0.1.0 -t REGISTRY/gpuplan-scheduler:v0.1.0 --push .
#
# Go compiles for the other architecture by itself; nothing is emulated. Both base images
# can be replaced by a mirror, and pinned by digest, with --build-arg.
ARG GO_IMAGE=golang:1.26.8-bookworm
ARG BASE_IMAGE=gcr.io/distroless/static-debian12:nonroot

FROM --platform=$BUILDPLATFORM ${GO_IMAGE} AS build
ARG TARGETOS
ARG TARGETARCH
ARG VERSION=dev
WORKDIR /src
ENV GOCACHE=/go/build
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod go mod download
COPY GNUmakefile ./
COPY internal internal
COPY scheduler scheduler
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/go/build \
    GOFLAGS=-trimpath CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH make bin/gpuplan-scheduler VERSION=$VERSION

FROM ${BASE_IMAGE}
COPY --from=build /src/bin/gpuplan-scheduler /usr/local/bin/
USER 65532:65532
ENTRYPOINT ["/usr/local/bin/gpuplan-scheduler"]
